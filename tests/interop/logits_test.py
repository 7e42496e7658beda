"""Logits of two real models are those of mlx_lm in float32, and so are 64 greedy tokens.

We run the packed GGUF file; mlx_lm runs the exact folder made of it, in one pass over the prompt
and our tokens: tokens are greedy if each is the largest logit of the position before it.
"""

import json
import os
import shutil
import unittest

import mlx.core as mx
import numpy as np
from mlx_lm import load
from transformers import AutoTokenizer, GenerationConfig

from support import GEMMA3, LICENSE_PROMPT, SMOLLM2, packstone, packstone_json, work_folder

TOKENS = 64
TOLERANCE = 2e-3  # of the standard deviation of the logits


class Logits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mx.set_default_device(mx.cpu)
        cls.folder = work_folder("logits")

    def check(self, model, layout):
        path = os.path.join(self.folder, layout)
        self.addCleanup(shutil.rmtree, path, ignore_errors=True)
        packstone("convert", model, path, "--to", layout)
        answer = packstone_json("generate", model, "-p", LICENSE_PROMPT, "--max-tokens", TOKENS)
        prompt, tokens = answer["prompt_tokens"], answer["tokens"]
        self.assertEqual(len(tokens), TOKENS)
        ours = self.our_logits(model, prompt + tokens)
        theirs = mlx_logits(path, prompt + tokens)
        self.assertEqual(ours.shape, theirs.shape)
        error = np.abs(ours - theirs).max() / theirs.std()
        self.assertLessEqual(error, TOLERANCE)
        self.assertEqual(theirs.argmax(axis=1)[len(prompt) - 1 : -1].tolist(), tokens)
        self.check_text_files(path, prompt)

    def our_logits(self, model, ids):
        ids_path, out = (os.path.join(self.folder, name) for name in ("ids.json", "logits.npy"))
        with open(ids_path, "w", encoding="utf-8") as f:
            json.dump(ids, f)
        packstone("eval", "logits", model, "--tokens", ids_path, "--out", out)
        self.addCleanup(os.remove, out)
        return np.load(out)

    def check_text_files(self, path, prompt):
        """transformers reads the tokenizer and the generation settings of the folder."""
        tokenizer = AutoTokenizer.from_pretrained(path)
        self.assertEqual(tokenizer.encode(LICENSE_PROMPT), prompt)
        settings = GenerationConfig.from_pretrained(path)
        self.assertEqual(settings.eos_token_id, tokenizer.eos_token_id)

    def test_smollm2(self):
        self.check(SMOLLM2, "mlx-affine")

    def test_gemma3(self):
        self.check(GEMMA3, "float32")


def mlx_logits(path, ids):
    model, _ = load(path)
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([ids]))[0])


if __name__ == "__main__":
    unittest.main()
