"""Ids equal to the tokenizers package's on 10,000 varied strings, for the models in GGUF: the
package reads the tokenizer.json that packstone makes from the file. So are those of a folder made
of the file, and of a file made of the folder."""

import json
import os
import random
import shutil
import unittest

from support import GEMMA3, SMOLLM2, packstone, work_folder
from tokenizers import Tokenizer

SEED = 20261130
COUNT = 10000
BLOCKS = [
    (0x20, 0x7F),
    (0xA0, 0x250),
    (0x250, 0x370),
    (0x370, 0x400),
    (0x400, 0x530),
    (0x530, 0x600),
    (0x600, 0x700),
    (0x900, 0xA00),
    (0xE00, 0xE80),
    (0x1000, 0x1200),
    (0x1200, 0x1400),
    (0x1780, 0x18B0),
    (0x1E00, 0x2000),
    (0x2000, 0x20D0),
    (0x2100, 0x2300),
    (0x2460, 0x27C0),
    (0x3000, 0x30FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xA000, 0xA4D0),
    (0xAC00, 0xD7A4),
    (0xE000, 0xF000),
    (0xF900, 0xFE10),
    (0xFF00, 0xFFF0),
    (0x10000, 0x10400),
    (0x10D40, 0x10D90),
    (0x11F00, 0x11F60),
    (0x1D400, 0x1D800),
    (0x1F300, 0x1FA00),
    (0x20000, 0x2A6E0),
    (0x2EBF0, 0x2EE5E),
    (0x31350, 0x323B0),
    (0xE0100, 0xE01F0),
    (0, 0x10FFFF),
]
WORDS = (
    "the quick brown fox don't I'LL we've He'd na\u00efve caf\u00e9 \u2014 Stra\u00dfe hello"
    " function return int main() { } == != => 3.14159 1234567 0x1F 2024-01-01"
    " http://example.com/a?b=c&d=e \u043f\u0440\u0438\u0432\u0435\u0442 \u4f60\u597d\u4e16\u754c"
    " \u3053\u3093\u306b\u3061\u306f \uc548\ub155\ud558\uc138\uc694 \u0645\u0631\u062d\u0628\u0627"
    " \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947"
    " \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35"
).split(" ")
SPACES = [
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    "\t\t\t",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u2028",
    "\u2029",
    "\u200b",
    "\u180e",
    "\u0085",
    "\x0b",
    "\x0c",
    "\ufeff",
    " " * 17,
    "\n" * 5,
    " \n \n",
]
EMOJI = [
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\U0001f469\U0001f3fd\u200d\U0001f680",
    "\U0001f1e9\U0001f1ea",
    "\u2764\ufe0f\u200d\U0001f525",
    "1\ufe0f\u20e3",
]
LONG = [
    "",
    " ",
    "\n",
    " " * 10000,
    "a" * 10000,
    "\u2581" * 500,
    "\t" * 300,
    "\n" * 300,
    "\u00e9" * 3000,
    "1" * 5000,
    "aaaa " * 2000,
]


def character(rng):
    low, high = rng.choice(BLOCKS)
    while True:
        point = rng.randrange(low, high)
        if not 0xD800 <= point < 0xE000:
            return chr(point)


def piece(rng, specials):
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(WORDS)
    if kind < 0.5:
        return rng.choice(SPACES)
    if kind < 0.66:
        return "".join(character(rng) for _ in range(rng.randrange(1, 9)))
    if kind < 0.72:
        return rng.choice(EMOJI)
    if kind < 0.79:
        return rng.choice(specials)
    if kind < 0.85:
        return str(rng.randrange(10 ** rng.randrange(1, 12)))
    if kind < 0.89:
        return rng.choice("abcxyz .,-=#*_\n\u2581\u00e9") * rng.randrange(1, 60)
    if kind < 0.92:
        return "".join(chr(rng.randrange(32)) for _ in range(rng.randrange(1, 5)))
    if kind < 0.96:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9))).decode(
            "utf-8", "replace"
        )
    return "".join(
        rng.choice("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~") for _ in range(rng.randrange(1, 10))
    )


def strings(specials):
    rng = random.Random(SEED)
    out = list(LONG)
    while len(out) < COUNT:
        out.append(
            "".join(
                piece(rng, specials) for _ in range(rng.randrange(1, rng.choice([3, 8, 20, 40])))
            )
        )
    return out


class TokenizerTest(unittest.TestCase):
    def check(self, name, model, layout, layout_back):
        work = work_folder("tokenizer_" + name)
        self.addCleanup(shutil.rmtree, work, ignore_errors=True)
        folder, back = os.path.join(work, "converted"), os.path.join(work, "back.gguf")
        packstone("convert", model, folder, "--to", layout)
        packstone("convert", folder, back, "--to", layout_back)
        document = os.path.join(folder, "tokenizer.json")
        reference = Tokenizer.from_file(document)
        with open(document, encoding="utf-8") as f:
            added = [token["content"] for token in json.load(f)["added_tokens"]]
        texts = strings(added[:40] + ["<0x0A>", "<0x-1>", "<0xZZ>", "<|im_end", "|>"])
        lines_path = os.path.join(work, "strings.jsonl")
        with open(lines_path, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(text) + "\n" for text in texts)
        for source in (model, folder, back):
            out = packstone("tokenize", source, "--jsonl", lines_path).decode("utf-8")
            lines = out.splitlines()
            self.assertEqual(len(lines), len(texts))
            differ = [
                text[:80]
                for text, line in zip(texts, lines)
                if json.loads(line)["ids"] != reference.encode(text).ids
            ]
            self.assertEqual(differ[:5], [], f"{len(differ)} of {len(texts)} differ, seed {SEED}")

    def test_smollm2(self):
        self.check("smollm2", SMOLLM2, "mlx-affine", "gguf:Q4_1")

    def test_gemma3(self):
        self.check("gemma3", GEMMA3, "float32", "gguf:F32")


if __name__ == "__main__":
    unittest.main()
