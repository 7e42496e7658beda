"""The gguf package and llama.cpp read the GGUF files that we write: equal values, equal tokens."""

import os
import unittest

import gguf
import numpy as np
import xllamacpp

from support import (
    LICENSE_IDS,
    LICENSE_PROMPT,
    LICENSE_PROMPT_IDS,
    SMOLLM2,
    packstone,
    packstone_json,
    work_folder,
)


def read(path):
    """Values of every tensor, as the gguf package decodes them, and its type."""
    tensors = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        tensors[tensor.name] = (values, tensor.tensor_type)
    return tensors


def llama_cpp_greedy(path, prompt, count):
    """Greedy ids of llama.cpp for a prompt of ids."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.n_ctx = 512
    parameters.cpuparams.n_threads = 2
    parameters.n_parallel = 1
    parameters.warmup = False
    server = xllamacpp.Server(parameters)
    answer = server.handle_completions(
        {"prompt": prompt, "max_tokens": count, "temperature": 0, "top_k": 1, "logprobs": 1}
    )
    return [token["id"] for token in answer["choices"][0]["logprobs"]["content"]]


class Gguf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = work_folder("gguf")
        cls.mlx = os.path.join(cls.folder, "mlx")
        cls.back = os.path.join(cls.folder, "back.gguf")
        packstone("convert", SMOLLM2, cls.mlx, "--to", "mlx-affine")
        packstone("convert", cls.mlx, cls.back, "--to", "gguf:Q4_1")

    def test_there_and_back_has_equal_values_and_types(self):
        first, second = read(SMOLLM2), read(self.back)
        self.assertEqual(sorted(first), sorted(second))
        for name, (values, kind) in first.items():
            self.assertEqual(kind, second[name][1], name)
            self.assertTrue(np.array_equal(values, second[name][0]), name)

    def test_metadata_has_the_keys_of_the_first_file(self):
        first, second = gguf.GGUFReader(SMOLLM2), gguf.GGUFReader(self.back)
        for key in ("general.architecture", "llama.block_count", "llama.embedding_length",
                    "llama.feed_forward_length", "llama.attention.head_count",
                    "llama.attention.head_count_kv", "llama.context_length", "llama.rope.freq_base",
                    "llama.attention.layer_norm_rms_epsilon", "tokenizer.ggml.model",
                    "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.merges",
                    "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                    "tokenizer.chat_template"):  # fmt: skip
            with self.subTest(key=key):
                self.assertIsNotNone(second.get_field(key))
                self.assertEqual(first.get_field(key).contents(), second.get_field(key).contents())

    def test_llama_cpp_says_the_reference_tokens(self):
        self.assertEqual(llama_cpp_greedy(self.back, LICENSE_PROMPT_IDS, 32), LICENSE_IDS)

    def test_we_say_the_reference_tokens(self):
        for path in (SMOLLM2, self.back, self.mlx):
            with self.subTest(path=os.path.basename(path)):
                ours = packstone_json("generate", path, "-p", LICENSE_PROMPT, "--max-tokens", 32)
                self.assertEqual(ours["prompt_tokens"], LICENSE_PROMPT_IDS)
                self.assertEqual(ours["tokens"], LICENSE_IDS)

    def test_llama_cpp_runs_our_quantized_file(self):
        path = os.path.join(self.folder, "q8_0.gguf")
        packstone("quantize", SMOLLM2, path, "--method", "rtn", "--to", "gguf:Q8_0")
        ours = packstone_json("generate", path, "-p", LICENSE_PROMPT, "--max-tokens", 8)
        # llama.cpp rounds activations to 8 bits, so only a beginning must agree.
        self.assertEqual(ours["tokens"], llama_cpp_greedy(path, LICENSE_PROMPT_IDS, 8))

    def test_quantized_bytes_are_those_of_the_gguf_package(self):
        path, plain = os.path.join(self.folder, "q4_0.gguf"), os.path.join(self.folder, "f32.gguf")
        packstone("quantize", SMOLLM2, path, "--method", "rtn", "--to", "gguf:Q4_0",
                  "--mode", "parity")  # fmt: skip
        packstone("convert", SMOLLM2, plain, "--to", "gguf:F32")
        ours = {t.name: t for t in gguf.GGUFReader(path).tensors}
        for tensor in gguf.GGUFReader(plain).tensors[:12]:
            if len(tensor.shape) != 2:
                continue
            kind = ours[tensor.name].tensor_type
            with self.subTest(name=tensor.name, kind=kind.name):
                self.assertEqual(kind.name, "Q4_0")
                theirs = gguf.quants.quantize(tensor.data, kind)
                self.assertTrue(np.array_equal(theirs, ours[tensor.name].data))


if __name__ == "__main__":
    unittest.main()
