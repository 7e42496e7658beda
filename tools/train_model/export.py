#!/usr/bin/env python3
"""Writes the model's folder as Hugging Face reads it.

usage: export.py --trained FOLDER --tokenizer FILE --corpus FOLDER --heldout FILE
                 --text-perplexity X --out FOLDER

--trained is the output of train.py, --corpus that of corpus.py, X the perplexity of --heldout.
"""

import argparse
import json
import math
import os
import shutil

from shape import SHAPE
from sources import SOURCES

CARD = """\
---
language: en
library_name: transformers
tags: [llama, small, text-generation]
---

# {name}

A small dense language model of {parameters:,} parameters for measuring what quantization costs. It
continues technical English and source code; it follows no instructions and knows no facts worth
trusting.

- Architecture: LlamaForCausalLM, {layers} layers, hidden {hidden}, intermediate {inner},
  {heads} heads of {dim}, {kv} key-value heads, tied embeddings, context {context}.
- Tokenizer: byte-level BPE, {vocab} tokens, single digits; `<|endoftext|>` (id 0) stands before
  each document.
- Weights: bfloat16, one safetensors file; every matrix has a multiple of 256 columns.
- Text: {mb:.0f} MB, {prose:.0f} % English prose and manuals, {code:.0f} % source code.
- Training: {seen:.0f} million tokens ({epochs:.1f} passes), {steps} steps of {batch} sequences,
  AdamW, float32 weights, bfloat16 products, {seconds:.0f} s on one NVIDIA H200 ({speed:.2f} million
  tokens a second).
- Loss at the end of training: {train:.3f} nats a token.
- Loss on all held-out documents: {heldout:.3f} nats a token, perplexity {ppl:.2f} ({bpb:.3f} bits
  a byte), of the bfloat16 weights; some of these documents have another rendering in the training
  text.
- Perplexity of `heldout.txt`, by `packstone eval ppl --context 512`: {text_ppl}.

`heldout.txt` ({held_bytes} bytes) is text the model was not trained on: half prose, half code,
whole documents chosen by the hash of their path from packages under permissive licences.
`corpus.json` names its documents, and for every package of the corpus the version, the SHA-256 of
the .deb, and how much was read. `tools/train_model` makes all of this again.

## Sources and licences

The text is read from packages of Debian 12 (main), all under licences free by Debian's guidelines;
the licence of each is the file `usr/share/doc/PACKAGE/copyright` of the package. None of that text
is here but `heldout.txt`, whose documents stand under these licences, the texts of which are in the
packages:

{held_sources}

| package | version | kind | documents | MB |
| --- | --- | --- | ---: | ---: |
{packages}
"""


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def read_json(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def card(name, trained, corpus, heldout, text_perplexity):
    """The model card; `heldout` is the path of the repository's held-out text."""
    sizes = corpus["bytes"]
    prose, code = sizes["train prose"], sizes["train code"]
    size = prose + code
    rows = [
        f"| {p['package']} | {p['version']} | {p['kind']} | {p['documents']} "
        f"| {p['bytes'] / 1e6:.1f} |"
        for p in corpus["packages"]
    ]
    held = {document.split(": ")[0] for document in corpus["heldout_documents"]}
    sources = [f"- {s.package}: {s.licence}" for s in SOURCES if s.package in held]
    heldout_bytes = sum(count for kind, count in sizes.items() if kind.startswith("heldout"))
    bytes_per_token = heldout_bytes / trained["heldout_ids"]
    return CARD.format(
        name=name, parameters=trained["parameters"], layers=SHAPE["num_hidden_layers"],
        hidden=SHAPE["hidden_size"], inner=SHAPE["intermediate_size"], dim=SHAPE["head_dim"],
        heads=SHAPE["num_attention_heads"], kv=SHAPE["num_key_value_heads"],
        context=SHAPE["max_position_embeddings"], vocab=SHAPE["vocab_size"],
        mb=size / 1e6, prose=100 * prose / size, code=100 * code / size,
        seen=trained["tokens_seen"] / 1e6, epochs=trained["tokens_seen"] / trained["training_ids"],
        steps=trained["steps"], batch=trained["sequences_per_step"], seconds=trained["seconds"],
        speed=trained["tokens_seen"] / trained["seconds"] / 1e6, train=trained["train_loss"],
        heldout=trained["heldout_loss"], ppl=math.exp(trained["heldout_loss"]),
        bpb=trained["heldout_loss"] / math.log(2) / bytes_per_token,
        held_bytes=os.path.getsize(heldout), text_ppl=text_perplexity,
        held_sources="\n".join(sources),
        packages="\n".join(rows),
    )  # fmt: skip


def main():
    layout = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    for name in ("trained", "tokenizer", "corpus", "heldout", "text-perplexity", "out"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()

    trained = read_json(options.trained, "train.json")
    corpus = read_json(options.corpus, "manifest.json")
    os.makedirs(options.out, exist_ok=True)
    shutil.copyfile(
        os.path.join(options.trained, "model.safetensors"),
        os.path.join(options.out, "model.safetensors"),
    )
    shutil.copyfile(options.tokenizer, os.path.join(options.out, "tokenizer.json"))
    shutil.copyfile(options.heldout, os.path.join(options.out, "heldout.txt"))
    write_json(options.out, "corpus.json", corpus)
    write_json(options.out, "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        **SHAPE, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
        "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": True,
        "rope_scaling": None, "use_cache": True, "bos_token_id": 0, "eos_token_id": 0,
    })  # fmt: skip
    write_json(options.out, "generation_config.json", {"bos_token_id": 0, "eos_token_id": 0})
    write_json(options.out, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": SHAPE["max_position_embeddings"],
        "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
        "add_bos_token": False, "add_prefix_space": False, "clean_up_tokenization_spaces": False,
    })  # fmt: skip
    name = os.path.basename(os.path.abspath(options.out))
    with open(os.path.join(options.out, "README.md"), "w", encoding="utf-8") as file:
        file.write(card(name, trained, corpus, options.heldout, options.text_perplexity))


if __name__ == "__main__":
    main()
