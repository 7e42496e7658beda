"""What the tests of torch programs share: a tiny Llama, and weights compared bit for bit."""

import importlib.metadata
import json
import os
import sys
import unittest

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
from support import SMOLLM2, license_text, packstone, work_folder  # noqa: E402,F401

BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
LINEAR_COUNT = 14  # linear layers of the tiny Llama
torch.set_num_threads(1)


def tiny_llama(folder, dtype=torch.float16, layers=2):
    """A Llama with random weights and a tokenizer, as transformers saves it; the folder's path."""
    path = os.path.join(folder, "tiny")
    torch.manual_seed(7)
    config = LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=512, max_position_embeddings=512, bos_token_id=0,
        eos_token_id=1, tie_word_embeddings=False)  # fmt: skip
    LlamaForCausalLM(config).to(dtype).save_pretrained(path)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())  # fmt: skip
    tokenizer.train([license_text(folder)], trainer)
    tokenizer.save(os.path.join(path, "tokenizer.json"))
    with open(os.path.join(path, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                   "eos_token": "</s>", "model_max_length": 512}, f)  # fmt: skip
    return path


def tensors(folder):
    return load_file(os.path.join(folder, "model.safetensors"))


def packstone_values(path):
    """Name of a linear layer to the float32 matrix that packstone decodes."""
    packstone("convert", path, path + "-float32", "--to", "float32", "--force")
    return {
        name.removesuffix(".weight"): values
        for name, values in tensors(path + "-float32").items()
        if name.endswith("_proj.weight")
    }


def real_model(folder):
    """SmolLM2-135M in 4-bit symmetric integers, a GGUF that moves exactly; its values too."""
    if not os.path.exists(SMOLLM2):
        raise unittest.SkipTest("the model is not there; the suite `models` fetches it")
    path = os.path.join(folder, "smollm2.gguf")
    packstone("quantize", SMOLLM2, path, "--method", "rtn", "--to", "gguf:Q4_0")
    packstone("convert", path, os.path.join(folder, "smollm2-float32"), "--to", "float32")
    return path, {
        name.removesuffix(".weight"): values
        for name, values in tensors(os.path.join(folder, "smollm2-float32")).items()
    }


def differing(theirs, ours):
    """How many values differ in a bit once ours are rounded to the type of theirs."""
    rounded = ours.to(theirs.dtype)
    bits = BITS[theirs.dtype]
    return int((theirs.contiguous().view(bits) != rounded.view(bits)).sum())


def check(test, program, what, theirs, ours, count=LINEAR_COUNT):
    """Fails where a module is missing or a value differs; prints one line of a table."""
    test.assertEqual(sorted(theirs), sorted(ours))
    test.assertEqual(len(theirs), count)
    counts = {name: differing(theirs[name], ours[name]) for name in theirs}
    total = sum(v.numel() for v in theirs.values())
    dtype = str(next(iter(theirs.values())).dtype).removeprefix("torch.")
    version = importlib.metadata.version(program)
    print(f"{program} {version} | {what} | {dtype} | {len(theirs)} modules | {total} values | "
          f"{sum(counts.values())} differ", flush=True)  # fmt: skip
    for name, count in counts.items():
        if count:
            where = torch.nonzero(theirs[name] != ours[name].to(theirs[name].dtype))[:1].tolist()
            test.fail(f"{what}: {name}: {count} values differ, the first at {where}")
