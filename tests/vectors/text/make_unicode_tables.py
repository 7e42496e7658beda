"""Writes src/packstone/text/unicode_tables.h: the character sets of the `tokenizers` package.

Found by asking it about every code point; also how they differ from the Unicode 14 data of PCRE2
10.42.

Usage: python make_unicode_tables.py OUTPUT   (needs `tokenizers` 0.23 and Python 3.11: Unicode 14)
"""

import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

assert unicodedata.unidata_version == "14.0.0", "run with Python 3.11"
POINTS = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co"
).split()


def removed_by(rule):
    found = set()
    for i in range(0, len(POINTS), 4000):
        chunk = POINTS[i : i + 4000]
        rest = set("".join(p for p, _ in rule.pre_tokenize_str("".join(map(chr, chunk)))))
        found.update(c for c in chunk if chr(c) not in rest)
    return found


def isolated_by(rule, glue):
    found = set()
    for i in range(0, len(POINTS), 4000):
        for piece, _ in rule.pre_tokenize_str(glue.join(map(chr, POINTS[i : i + 4000]))):
            if len(piece) == 1 and piece != glue:
                found.add(ord(piece))
    return found


def regex_set(pattern):
    return removed_by(pre_tokenizers.Split(Regex(pattern), "removed"))


def joined_by_whitespace_rule():
    rule = pre_tokenizers.Whitespace()
    text = " ".join("a" + chr(c) for c in POINTS)
    pieces = {p for p, _ in rule.pre_tokenize_str(text)}
    return {c for c in POINTS if "a" + chr(c) in pieces}


def stripped_accents():
    rule = normalizers.StripAccents()
    return {c for c in POINTS if rule.normalize_str("a" + chr(c)) == "a"}


def lower_pairs():
    rule = normalizers.Lowercase()
    pairs = [(c, rule.normalize_str(chr(c))) for c in POINTS]
    new = [(c, low) for c, low in pairs if low != chr(c).lower()]
    assert all(len(low) == 1 for _, low in new)
    return ["{0x%X, 0x%X}" % (c, ord(low)) for c, low in new]


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def table(name, comment, points):
    rows = ["{0x%X, 0x%X}" % tuple(r) for r in ranges(points)]
    return "// %s\ninline constexpr CodeRange %s[] = {%s};\n\n" % (comment, name, ", ".join(rows))


def main():
    sets = {k: regex_set("\\p{%s}" % k) for k in CATEGORIES}
    added = []
    for k in CATEGORIES:
        new = {c for c in sets[k] if unicodedata.category(chr(c)) == "Cn"}
        added += ['{"%s", {0x%X, 0x%X}}' % (k, a, b) for a, b in ranges(new)]
    word = regex_set("\\w")
    base = set().union(*[sets[k] for k in CATEGORIES if k[0] in "LM" or k in ("Nd", "Nl", "Pc")])
    assert not base - word
    with open(sys.argv[1], "w", encoding="ascii") as f:
        f.write(
            "// Character sets of the `tokenizers` package (0.23). Made by\n"
            "// tests/vectors/text/make_unicode_tables.py; do not edit.\n#pragma once\n\n"
            '#include "packstone/text/unicode.h"\n\nnamespace packstone::text {\n\n'
            "// A range of one general category that Unicode 14 leaves unassigned.\n"
            "struct AddedRange {\n  const char* category;\n  CodeRange range;\n};\n\n"
            "// What its regex engine (Unicode 16) knows beyond Unicode 14.\n"
            "inline constexpr AddedRange kAddedSince14[] = {%s};\n\n"
            % ", ".join(added)
        )
        f.write(
            table(
                "kRegexWordExtra",
                "\\w of its regex engine beyond L, M, Nd, Nl and Pc.",
                word - base,
            )
        )
        f.write(
            table(
                "kNumeric",
                "What its Digits rule takes for a digit.",
                isolated_by(pre_tokenizers.Digits(True), "a"),
            )
        )
        f.write(
            table(
                "kPunctuation",
                "What its Punctuation rule takes for punctuation.",
                removed_by(pre_tokenizers.Punctuation("removed")),
            )
        )
        f.write(
            table(
                "kWord",
                "\\w of its Whitespace rule and of single-word added tokens.",
                joined_by_whitespace_rule(),
            )
        )
        f.write(
            table(
                "kMark",
                "What its StripAccents rule takes for a combining mark.",
                stripped_accents(),
            )
        )
        f.write(
            "// Lower case letters (first: the letter, last: its lower case) beyond Unicode 14.\n"
            "inline constexpr CodeRange kLowerSince14[] = {%s};\n\n"
            % ", ".join(lower_pairs())
        )
        f.write("}  // namespace packstone::text\n")


main()
