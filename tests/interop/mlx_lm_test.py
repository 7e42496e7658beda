"""Stock mlx_lm loads our mlx-affine checkpoints of a real model and says the same greedy tokens."""

import os
import unittest

import mlx.core as mx
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache

from support import CHAT_PROMPT, LICENSE_PROMPT, SMOLLM2, packstone, packstone_json, work_folder

TOKENS = 64


def mlx_greedy(model, prompt, count):
    """Greedy tokens in float32 on the CPU, one by one; ties go to the smallest id."""
    cache, tokens, ids = make_prompt_cache(model), [], prompt
    for _ in range(count):
        logits = model(mx.array([ids]), cache=cache)[0, -1]
        tokens.append(int(mx.argmax(logits)))
        ids = [tokens[-1]]
    return tokens


class MlxLm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mx.set_default_device(mx.cpu)
        cls.folder = work_folder("mlx_lm")

    def same_tokens(self, path):
        model, tokenizer = load(path)
        model.set_dtype(mx.float32)
        for prompt in (CHAT_PROMPT, LICENSE_PROMPT):
            with self.subTest(prompt=prompt):
                ours = packstone_json("generate", path, "-p", prompt, "--max-tokens", TOKENS)
                self.assertEqual(ours["prompt_tokens"], tokenizer.encode(prompt))
                self.assertGreaterEqual(len(ours["tokens"]), 8)
                theirs = mlx_greedy(model, ours["prompt_tokens"], len(ours["tokens"]))
                self.assertEqual(ours["tokens"], theirs)
        return tokenizer

    def test_converted_from_gguf(self):
        path = os.path.join(self.folder, "converted")
        packstone("convert", SMOLLM2, path, "--to", "mlx-affine")
        tokenizer = self.same_tokens(path)
        # The chat template travels with the model.
        messages = [{"role": "user", "content": "Hi"}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        self.assertTrue(text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"))

    def test_quantized_to_4_bits(self):
        path = os.path.join(self.folder, "w4")
        packstone("quantize", SMOLLM2, path, "--method", "rtn", "--to", "mlx-affine",
                  "--bits", 4, "--group-size", 64)  # fmt: skip
        self.same_tokens(path)

    def test_quantized_to_8_bits(self):
        path = os.path.join(self.folder, "w8")
        packstone("quantize", SMOLLM2, path, "--method", "rtn", "--to", "mlx-affine",
                  "--bits", 8, "--group-size", 64)  # fmt: skip
        self.same_tokens(path)

    def test_mlx_decodes_to_our_values(self):
        """MLX decodes our 4-bit weights to the bits that our float32 decode of them has."""
        packed, plain = os.path.join(self.folder, "w4d"), os.path.join(self.folder, "w4d-float32")
        packstone("quantize", SMOLLM2, packed, "--method", "rtn", "--to", "mlx-affine",
                  "--bits", 4, "--group-size", 64)  # fmt: skip
        packstone("convert", packed, plain, "--to", "float32")
        ours = load_tensors(plain)
        theirs = load_tensors(packed)
        name = "model.layers.3.mlp.down_proj"
        decoded = mx.dequantize(
            theirs[f"{name}.weight"],
            theirs[f"{name}.scales"].astype(mx.float32),
            theirs[f"{name}.biases"].astype(mx.float32),
            group_size=64,
            bits=4,
        )
        self.assertTrue(mx.array_equal(decoded, ours[f"{name}.weight"]).item())


def load_tensors(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(mx.load(os.path.join(folder, name)))
    return tensors


if __name__ == "__main__":
    unittest.main()
