#!/usr/bin/env python3
"""Compares Packstone on the model's folder with tokenizers and transformers in float32.

usage: compare.py MODEL PACKSTONE [--tokens N] [--context C]

Token ids of the whole of heldout.txt must be equal; the logits of a prompt and the perplexity of
the first N tokens (windows of C, each scored from its second half on) are printed for both, with
the relative difference. Exit 1 past TOLERANCE.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-3
PROMPT_TOKENS = 256
TEXT = argparse.RawTextHelpFormatter


def packstone(program, *arguments):
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def perplexity(model, ids, context):
    total = count = 0
    half = context // 2
    for start in range(0, len(ids) - context + 1, context):
        window = torch.tensor([ids[start : start + context]])
        scores = model(window).logits[0, half:-1].double().log_softmax(-1)
        total -= scores.gather(1, window[0, half + 1 :, None]).sum().item()
        count += len(scores)
    return math.exp(total / count)


def report(name, ours, theirs, error):
    print(f"{name}: packstone {ours:.6f}, transformers {theirs:.6f}, difference {error:.2e}")
    return error <= TOLERANCE


def our_logits(program, model, ids, folder):
    ids_path, out = os.path.join(folder, "ids.json"), os.path.join(folder, "logits.npy")
    with open(ids_path, "w", encoding="utf-8") as file:
        json.dump(ids, file)
    command = [program, "eval", "logits", model, "--tokens", ids_path, "--out", out]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return np.load(out)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=TEXT)
    parser.add_argument("model")
    parser.add_argument("packstone")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--context", type=int, default=512)
    options = parser.parse_args()
    program, folder, context = options.packstone, options.model, options.context

    text_path = os.path.join(folder, "heldout.txt")
    with open(text_path, encoding="utf-8") as file:
        text = file.read()
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    ours = packstone(program, "tokenize", folder, "--file", text_path, "--json")
    good = ours["ids"] == ids
    print(f"{len(ids)} token ids, {'equal' if good else 'NOT equal'}")

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as work:
        prompt = ids[:PROMPT_TOKENS]
        mine = our_logits(program, folder, prompt, work)
        theirs = model(torch.tensor([prompt])).logits[0].numpy()
        error = np.abs(mine - theirs).max() / theirs.std()
        good &= report("largest logit", mine[-1].max(), theirs[-1].max(), error)

        cut = os.path.join(work, "cut.txt")
        cut_text = tokenizer.decode(ids[: options.tokens])
        with open(cut, "w", encoding="utf-8") as file:
            file.write(cut_text)
        result = packstone(
            program, "eval", "ppl", folder, "--text", cut, "--context", str(context), "--json"
        )
    cut_ids = tokenizer.encode(cut_text, add_special_tokens=False).ids
    reference = perplexity(model, cut_ids, context)
    good &= report("perplexity", result["ppl"], reference, abs(result["ppl"] / reference - 1))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
