"""Makes the oracle files of the text room with the `tokenizers` package (0.23): small tokenizers,
strings, and what the package gives for them under many pipelines.

Usage: python make_text_vectors.py FOLDER_OF_LICENSE_TEXTS   (writes beside itself)
The trainer breaks ties at random, so base_words.json may differ from run to run; the files of a
run fit together. Digests are 32-bit FNV-1a over the joined results of 24 strings each.
"""

import itertools
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
MARK = "\u2581"


def fnv(text):
    h = 0x811C9DC5
    for b in text.encode("utf-8"):
        h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return h


def write(name, value, indent=None):
    text = json.dumps(value, ensure_ascii=True, indent=indent, separators=(",", ":"))
    assert len(text) < 65536, (name, len(text))
    (HERE / name).write_text(text + "\n")


def train(text, model, pre, normalizer=None, **options):
    tok = Tokenizer(model)
    tok.pre_tokenizer = pre
    if normalizer:
        tok.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=options.pop("size", 640), show_progress=False, **options
    )
    tok.train_from_iterator(text.splitlines(), trainer)
    return json.loads(tok.to_str())


def bases(text):
    lines = (
        text + "\nna\u00efve caf\u00e9 Stra\u00dfe \u4f60\u597d \u043c\u0438\u0440 3.14 1234\n" * 20
    )
    made = {}
    made["bytes"] = train(
        lines,
        models.BPE(),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    pieces = train(
        lines,
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
        pre_tokenizers.Split(MARK, "merged_with_next"),
        normalizers.Replace(" ", MARK),
        special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)],
        size=900,
    )
    pieces["added_tokens"] = pieces["added_tokens"][:3]
    made["pieces"] = pieces
    made["chars"] = train(
        lines,
        models.BPE(unk_token="[UNK]"),
        pre_tokenizers.Whitespace(),
        special_tokens=["[UNK]", "[CLS]"],
    )
    made["words"] = train(
        lines,
        models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", end_of_word_suffix="</w>"),
        pre_tokenizers.Whitespace(),
        special_tokens=["[UNK]"],
        continuing_subword_prefix="##",
        end_of_word_suffix="</w>",
    )
    for name in made:
        made[name]["model"]["merges"] = [
            m if isinstance(m, str) else m if " " in m[0] + m[1] else " ".join(m)
            for m in made[name]["model"]["merges"]
        ]
        if not all(isinstance(m, str) for m in made[name]["model"]["merges"]):
            made[name]["model"]["merges"] = [
                m.split(" ") if isinstance(m, str) else m for m in made[name]["model"]["merges"]
            ]
    return made


CASES = [
    "",
    " ",
    "1234567",
    "a  b",
    "\u2029\ua3e4",
    "don't",
    "Caf\u00e9 \u2014",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "a\r\nb",
    " " * 10000,
    "<0x-1>",
    "<0xZZ>",
    "<0x100>",
    "<0x0A>",
    "\\d+",
    "x\\d+y 12",
    "hello\\d+\\d+",
    "<s>Hello",
    "<s> Hello</s>",
    "[UNK]",
    MARK + "a" + MARK,
    "I'LL WE'VE '\u017f 'S",
    "\u180e \u0085\u00a0\u3000x",
    "e\u0301\ufb01\u0130\u1e9e",
    "\u1100\u1161\u11a8",
    "  lead",
    "trail  ",
    "\n\n\n a\n",
    "\t\t1\t",
    "12 345 6789 0",
    "a.b,c!d?e",
    "\u00b2\u00bd\u0664\u2167\u3007",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
]


def strings():
    rng = random.Random(3)
    words = (
        "the software is provided as licence don't I'LL we've na\u00efve caf\u00e9"
        " \u043c\u0438\u0440 \u4f60\u597d \u0627\u0644\u0639 \u0e20\u0e32\u0e29 3.14 1234567 0x1F"
        " == => <s> </s> [UNK] <|x|> \\d+"
    ).split(" ")
    spaces = [
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\u00a0",
        "\u3000",
        "\u2029",
        "\u0085",
        "\u180e",
        "\u200b",
        "     ",
    ]
    blocks = [
        (0x20, 0x7F),
        (0xA0, 0x250),
        (0x300, 0x370),
        (0x370, 0x530),
        (0x600, 0x700),
        (0x900, 0x980),
        (0xE00, 0xE80),
        (0x1100, 0x1200),
        (0x1E00, 0x2000),
        (0x2000, 0x2070),
        (0x2150, 0x2190),
        (0x2460, 0x2500),
        (0x3000, 0x3100),
        (0x4E00, 0x5000),
        (0xAC00, 0xAD00),
        (0xFB00, 0xFB50),
        (0xFF00, 0xFFEF),
        (0x10D40, 0x10D90),
        (0x11DE0, 0x11DEA),
        (0x1D400, 0x1D500),
        (0x1F300, 0x1F650),
        (0x31350, 0x31400),
        (0, 0x20),
    ]
    out = list(CASES)
    while len(out) < 1008:
        parts = []
        for _ in range(rng.randrange(1, 9)):
            kind = rng.random()
            if kind < 0.4:
                parts.append(rng.choice(words))
            elif kind < 0.7:
                parts.append(rng.choice(spaces))
            elif kind < 0.9:
                lo, hi = rng.choice(blocks)
                parts.append(
                    "".join(chr(rng.randrange(lo, hi)) for _ in range(rng.randrange(1, 4)))
                )
            else:
                parts.append(rng.choice("aA1. '-\n" + MARK) * rng.randrange(1, 20))
        out.append("".join(parts))
    return out


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(use_regex=True, prefix=False):
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def norms(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cut}


GPT4 = (
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+|"
    " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"
)
LLAMA3 = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
TEKKEN = (
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {
        "<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
        "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]},
    },
}
SPM_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ],
}
SPM_STRIP = {
    "type": "Sequence",
    "decoders": (
        SPM_DECODER["decoders"] + [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    ),
}
TO_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}


def pipelines():
    def one(name, base, model=None, **parts):
        return {"name": name, "base": base, "model": model or {}, "parts": parts}

    bl = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    nfc = {"type": "NFC"}
    digits = {"type": "Digits", "individual_digits": True}
    out = [
        one("gpt2", "bytes", normalizer=None, pre_tokenizer=byte_level(), decoder=bl),
        one("smollm", "bytes", pre_tokenizer=sequence(digits, byte_level()), decoder=bl),
        one(
            "qwen2",
            "bytes",
            normalizer=nfc,
            decoder=bl,
            pre_tokenizer=sequence(split(LLAMA3.replace("{1,3}", "")), byte_level(False)),
        ),
        one(
            "llama3",
            "bytes",
            model={"ignore_merges": True},
            decoder=bl,
            pre_tokenizer=sequence(split(LLAMA3), byte_level(False)),
        ),
        one(
            "tekken", "bytes", pre_tokenizer=sequence(split(TEKKEN), byte_level(False)), decoder=bl
        ),
        one(
            "gpt4_possessive",
            "bytes",
            pre_tokenizer=sequence(split(GPT4), byte_level(False)),
            decoder=bl,
        ),
        one(
            "TOK-01",
            "bytes",
            decoder=bl,
            pre_tokenizer=sequence(
                {"type": "Punctuation", "behavior": "Isolated"},
                byte_level(),
                {"type": "Digits", "individual_digits": False},
                split("[0-9][0-9][0-9]"),
            ),
        ),
        one(
            "TOK-03 string",
            "bytes",
            pre_tokenizer=sequence(split("\\d+", kind="String"), byte_level(False)),
            decoder=bl,
        ),
        one(
            "TOK-03 regex",
            "bytes",
            pre_tokenizer=sequence(split("\\d+"), byte_level(False)),
            decoder=bl,
        ),
        one("prefix_space", "bytes", pre_tokenizer=byte_level(True, True), decoder=bl),
        one(
            "word_boundary",
            "bytes",
            pre_tokenizer=sequence(split("\\b"), byte_level(False)),
            decoder=bl,
        ),
        one(
            "sets",
            "bytes",
            pre_tokenizer=sequence(split("\\w+|[^\\w\\s]|\\s+$|\\h+"), byte_level(False)),
            decoder=bl,
        ),
        one(
            "han",
            "bytes",
            pre_tokenizer=sequence(
                split("[\\p{Han}\\u3040-\\u30ff]+|\\p{M}+|\\p{S}|\\p{^L}\\p{Zs}"), byte_level(False)
            ),
            decoder=bl,
        ),
        one(
            "byte_normalizer",
            "bytes",
            normalizer={"type": "ByteLevel"},
            pre_tokenizer=split(" ?[a-z]+"),
            decoder=bl,
        ),
        one(
            "gemma",
            "pieces",
            normalizer=TO_MARK,
            pre_tokenizer=split(" ", "MergedWithPrevious", kind="String"),
            decoder=SPM_DECODER,
        ),
        one(
            "llama_legacy",
            "pieces",
            normalizer=norms({"type": "Prepend", "prepend": MARK}, TO_MARK),
            pre_tokenizer=None,
            decoder=SPM_STRIP,
            post_processor=TEMPLATE,
        ),
        one(
            "no_fallback",
            "pieces",
            model={"byte_fallback": False},
            normalizer=TO_MARK,
            pre_tokenizer=None,
            decoder=SPM_DECODER,
        ),
        one(
            "no_fuse",
            "pieces",
            model={"byte_fallback": False, "fuse_unk": False},
            normalizer=TO_MARK,
            pre_tokenizer=None,
            decoder=SPM_DECODER,
        ),
    ]
    for scheme, cut in itertools.product(("first", "always", "never"), (True, False)):
        out.append(
            one(
                "metaspace_%s_%d" % (scheme, cut),
                "pieces",
                normalizer=None,
                pre_tokenizer=metaspace(scheme, cut),
                decoder=metaspace(scheme, cut),
            )
        )
    for behavior, invert in (
        ("Removed", False),
        ("MergedWithPrevious", False),
        ("MergedWithNext", False),
        ("Contiguous", False),
        ("MergedWithPrevious", True),
        ("MergedWithNext", True),
        ("Removed", True),
        ("Contiguous", True),
    ):
        out.append(
            one(
                "split_%s_%d" % (behavior, invert),
                "chars",
                normalizer=None,
                decoder=None,
                pre_tokenizer=split("[aeiou]| |\\d{2}|", behavior, invert),
            )
        )
    for name, rule in (
        ("nfc", nfc),
        ("nfd", {"type": "NFD"}),
        ("nfkc", {"type": "NFKC"}),
        ("nfkd", {"type": "NFKD"}),
        ("lower", {"type": "Lowercase"}),
        ("accents", norms({"type": "NFD"}, {"type": "StripAccents"})),
        ("strip", {"type": "Strip", "strip_left": True, "strip_right": True}),
        ("replace", {"type": "Replace", "pattern": {"Regex": "\\s+|e(?=n)"}, "content": "_"}),
    ):
        out.append(
            one(
                "normalizer_" + name,
                "bytes",
                normalizer=rule,
                pre_tokenizer=byte_level(False),
                decoder=bl,
            )
        )
    for name, rule in (
        ("whitespace", {"type": "Whitespace"}),
        ("whitespace_split", {"type": "WhitespaceSplit"}),
        ("punctuation", {"type": "Punctuation", "behavior": "Removed"}),
        ("digits", {"type": "Digits", "individual_digits": False}),
    ):
        out.append(one("chars_" + name, "chars", normalizer=None, pre_tokenizer=rule, decoder=None))
    out.append(
        one(
            "words_prefix_suffix",
            "words",
            normalizer=None,
            pre_tokenizer={"type": "Whitespace"},
            decoder=None,
        )
    )
    return out


def document(base, pipeline, added=None):
    made = json.loads(json.dumps(base))
    made["model"].update(pipeline["model"])
    made.update(pipeline["parts"])
    if added:
        made["added_tokens"] += added
    return made


def results(made, texts):
    tok = Tokenizer.from_str(json.dumps(made))
    ids = [tok.encode(text).ids for text in texts]
    return ids, [tok.decode(i, skip_special_tokens=False) for i in ids]


def digests(items):
    return [fnv("\n".join(items[i : i + 24])) for i in range(0, len(items), 24)]


def added_cases(made):
    """TOK-04: every combination of flags, on texts around the marker."""
    texts = [
        "<m>Hello",
        "<m>user",
        " <m> ",
        "a <m> b",
        "a  <m>  b",
        "<m><m>",
        "<m> <m>",
        "x<m>y",
        "x <m>y",
        "x<m> y",
        "<m>>",
        "<<m>",
        "<m",
        "<m><n>",
        "<mm>",
        "\n<m>\t<m>",
        "\u00e9<m>",
        "<m>\u4f60",
        "_<m>",
        "<M>",
        "a<m>.",
        "",
        "<m>",
    ]
    cases = []
    for lstrip, rstrip, single, normalized, special in itertools.product((False, True), repeat=5):
        size = len(made["model"]["vocab"])
        flags = dict(
            single_word=single, lstrip=lstrip, rstrip=rstrip, normalized=normalized, special=special
        )
        added = [
            dict(id=size, content="<m>", **flags),
            dict(id=size + 1, content="<m><n>", **flags),
            dict(
                id=size + 2,
                content="<mm>",
                single_word=False,
                lstrip=False,
                rstrip=False,
                normalized=False,
                special=True,
            ),
        ]
        for lower in (False, True):
            pipeline = {
                "model": {},
                "parts": {"normalizer": {"type": "Lowercase"} if lower else None},
            }
            ids, _ = results(document(made, pipeline, added), texts)
            cases.append(
                dict(flags=flags, lower=lower, digest=fnv(json.dumps(ids, separators=(",", ":"))))
            )
    return dict(texts=texts, cases=cases)


def main():
    text = (pathlib.Path(sys.argv[1]) / "GPL-3").read_text()[:12000]
    made = bases(text)
    texts = strings()
    info = "tokenizers %s, make_text_vectors.py" % tokenizers.__version__
    for name, base in made.items():
        write("base_%s.json" % name, base)
    write("strings.json", texts)
    named = []
    for pipeline in pipelines():
        ids, decoded = results(document(made[pipeline["base"]], pipeline), texts)
        pipeline["ids"] = digests([",".join(map(str, i)) for i in ids])
        pipeline["text"] = [
            d if not any("\ufffd" in t for t in decoded[24 * k : 24 * k + 24]) else 0
            for k, d in enumerate(digests(decoded))
        ]
        if pipeline["name"] == "TOK-01":
            pipeline["first"] = ids[:9]
        if pipeline["name"].startswith("TOK-03"):
            pipeline["first"] = ids[:17]
        named.append(pipeline)
        if "first" in pipeline:
            pipeline["first"] = [i if len(i) < 400 else None for i in pipeline["first"]]
    write("pipelines.json", dict(made_by=info, pipelines=named))
    write("added_tokens.json", dict(made_by=info, **added_cases(made["bytes"])))
    rng = random.Random(8)
    broken = [
        bytes(
            rng.choice((rng.randrange(256), 0xE2, 0x82, 0xF0, 0x9F, 0xED, 0xA0, 0x41))
            for _ in range(rng.randrange(1, 9))
        )
        for _ in range(400)
    ]
    write("invalid_utf8.json", [[b.hex(), b.decode("utf-8", "replace")] for b in broken])


main()
