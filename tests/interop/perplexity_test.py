"""Perplexity of two real models equals that of exact float32 arithmetic, within 0.1 %.

The reference figures were computed with MLX in float32 on the dequantized weights, context 512, on
the first 20,480 bytes of the GPL-3 (8 windows, each scored from its second half on).
"""

import os
import unittest

from support import GEMMA3, SMOLLM2, license_text, packstone, packstone_json, work_folder


class Perplexity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = work_folder("perplexity")
        cls.text = license_text(cls.folder)

    def evaluate(self, model):
        return packstone_json("eval", "ppl", model, "--text", self.text, "--context", 512)

    def test_smollm2(self):
        result = self.evaluate(SMOLLM2)
        self.assertEqual(result["context"], 512)
        self.assertLess(abs(result["ppl"] / 18.3418 - 1), 0.001, result["ppl"])

    def test_gemma3(self):
        result = self.evaluate(GEMMA3)
        self.assertLess(abs(result["ppl"] / 14.8910 - 1), 0.001, result["ppl"])

    def test_an_exact_move_has_no_divergence(self):
        path = os.path.join(self.folder, "mlx")
        packstone("convert", SMOLLM2, path, "--to", "mlx-affine")
        short = os.path.join(self.folder, "short.txt")
        with open(self.text, "rb") as f, open(short, "wb") as g:
            g.write(f.read(5000))
        result = packstone_json("eval", "kld", path, "--against", SMOLLM2, "--text", short)
        self.assertLess(abs(result["kld_mean"]), 1e-6)
        self.assertEqual(result["top1_agreement"], 1)


if __name__ == "__main__":
    unittest.main()
