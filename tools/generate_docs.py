#!/usr/bin/env python3
"""Writes docs/FORMATS.md, docs/MOVES.md and docs/ERRORS.md from the program and its source, and the
tests of docs/contracts.md from their names.

usage: generate_docs.py [--check] [--json FILE] [--packstone PATH]

--check writes nothing and fails when a file on disk is not what would be written.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tools", "tidy"))

import check_contracts  # noqa: E402
from arrows import ARROWS  # noqa: E402
from source import read_tree  # noqa: E402

ACTIONS = {
    "kInvalidInput": ("fix the call", 2),
    "kNotFound": ("use another name", 2),
    "kCorruptData": ("get a good file", 4),
    "kUnsupported": ("use another format, kernel or build", 5),
    "kNotRepresentable": ("quantize instead of transcode: a value would change", 3),
    "kExhausted": ("wait, or raise the limit", 6),
    "kIo": ("check the disk or the network, then retry", 2),
    "kDevice": ("restart the device context", 5),
    "kCancelled": ("nothing", 130),
}


# Closed: every GGUF type is held against ggml on random and extreme blocks (make_gguf_vectors.py).
OTHER_VALUES = """\
## Where a value is not the one ggml decodes

These are all; codes and scale bytes move untouched in any case.

| layout | stored | here | ggml | why |
| --- | --- | --- | --- | --- |
| `gguf:MXFP4` | code 8 | -0 | +0 | E2M1 of OCP MX 1.0 (B14) |
| `gguf:MXFP4` | scale byte 255 | NaN | 2^128 times the level | E8M0 of OCP MX 1.0 (B13) |
| `gguf:NVFP4` | code 8 | -0 | +0 | E2M1, as in MXFP4 |

The scale byte of `gguf:NVFP4` is ggml's own UE4M3 and is read as ggml reads it (B22): 0x7F is 0,
bit 7 is ignored, and 0xFF is 480, where E4M3 has NaN at 0x7F and 0xFF.
""".split("\n")


def formats_page(packstone):
    done = subprocess.run([packstone, "formats", "--json"], check=True, capture_output=True)
    lines = [
        "# Formats",
        "",
        "Made by `tools/generate_docs.py` from `packstone formats --json`.",
        "",
        "Code bits are those of an unpacked code; a grid type stores one index for several codes.",
        "Bits per weight are stored, scales included, by a 256 x 1024 weight in its plainest "
        "variant.",
        "",
        "| layout | code bits | bits per weight | groups | read | write | run on CPU | run on CUDA "
        "| exact moves to |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for entry in json.loads(done.stdout):
        cells = [f"`{entry['name']}`", words(entry["bits"]), f"{entry['bits_per_weight']:.4g}"]
        cells.append(words(entry["group_sizes"]))
        cells += [words(entry[k]) for k in ("read", "write", "run_cpu", "run_cuda")]
        cells.append(", ".join(f"`{name}`" for name in entry["exact_to"]) or "-")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "The byte pictures and decode formulas are the comments on top of "
              "`src/packstone/format/*.h`.", "", *OTHER_VALUES]  # fmt: skip
    return "\n".join(lines)


VERDICTS = {
    "same_bytes": "same bytes back",
    "same_values": "same values",
    "same_values_more_bytes": "same values, more bytes",
}


def moves_page(packstone):
    done = subprocess.run(
        [packstone, "formats", "--pairs", "--json"], check=True, capture_output=True
    )
    pairs = json.loads(done.stdout)
    lines = [
        "# Exact moves between formats",
        "",
        "Made by `tools/generate_docs.py` from `packstone formats --pairs --json`: for every",
        "ordered pair of formats the best verdict that headers allow, on a [256, 1024] weight with",
        "the format's smallest group. What depends on the values follows as a condition; `convert` "
        "and",
        "`plan` decide it per tensor. Every pair is tried on random and adversarial weights by",
        "`transcode/pair_test.cc`.",
    ]
    sources = list(dict.fromkeys(pair["from"] for pair in pairs))
    counts = {verdict: 0 for verdict in [*VERDICTS, "refused"]}
    for pair in pairs:
        counts[pair["verdict"]] += 1
    lines += ["", "| verdict | pairs |", "| --- | --- |"]
    lines += [f"| {VERDICTS.get(v, v)} | {n} |" for v, n in counts.items()]
    for source in sources:
        lines += ["", f"## {source}", "", "| verdict | to | conditions or reason |"]
        lines += ["| --- | --- | --- |"]
        groups = {}
        for pair in pairs:
            if pair["from"] != source:
                continue
            refused = pair["verdict"] == "refused"
            why = pair["reason"] if refused else "; ".join(pair["conditions"])
            why = why.replace(pair["to"], "the target") if refused else why
            verdict = VERDICTS.get(pair["verdict"], "refused")
            groups.setdefault((verdict, why), []).append(pair["to"])
        for (verdict, why), targets in groups.items():
            names = ", ".join(f"`{name}`" for name in targets)
            lines.append(f"| {verdict} | {names} | {why or '-'} |")
    return "\n".join(lines) + "\n"


def words(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(words(v) for v in value) or "-"
    return str(value)


def arguments_at(text, position):
    """The arguments of the call whose opening parenthesis is at `position`."""
    depth, start, arguments, at, quote = 0, position + 1, [], position, ""
    while at < len(text):
        c = text[at]
        if quote:
            if c == "\\":
                at += 1
            elif c == quote:
                quote = ""
        elif c == '"' or (c == "'" and not text[at - 1].isalnum()):
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                arguments.append(text[start:at].strip())
                return arguments
        elif c == "," and depth == 1:
            arguments.append(text[start:at].strip())
            start = at + 1
        at += 1
    return arguments


STRING = r'"(?:\\.|[^"\\])*"'


def literal(text):
    """The characters of a C++ string literal; its escapes are Python's."""
    return ast.literal_eval(text)


def template(expression, constants):
    """The words of an argument, with <...> where a value stands."""
    expression = re.sub(r"//[^\n]*", "", expression).strip()
    if expression in constants:
        return constants[expression]
    if re.fullmatch(rf"(?:{STRING}\s*)+", expression):
        parts = re.findall(STRING, expression)
        return "".join(literal(p) for p in parts)
    if match := re.match(r"fmt::format\s*(?=\()", expression):
        arguments = arguments_at(expression, match.end())
        words = template(arguments[0], constants)
        for value in arguments[1:]:
            words = re.sub(r"\{[^{}]*\}", f"<{name_of(value)}>", words, count=1)
        return words.replace("{{", "{").replace("}}", "}")
    return f"<{name_of(expression)}>"


def name_of(expression):
    """A short name for a value: its last identifier."""
    expression = re.sub(STRING, "", expression)
    names = [
        n for n in re.findall(r"[A-Za-z_]\w*", expression) if n not in ("std", "string", "fmt")
    ]
    if not names or "?" in expression or "+" in expression:
        return "words"
    first = re.match(r"[\w:.>\-*]+", expression.lstrip("*"))
    names = (re.findall(r"[A-Za-z_]\w*", first.group(0)) if first else []) or names
    return names[-1].strip("_")


def messages(tree):
    """(where, code, message, file) of every fail() call below cli and in it."""
    found = set()
    for path in tree.cpp("src/packstone/"):
        if path.endswith(("_test.cc", "base/result.h")):
            continue
        text = tree.text(path)
        constants = dict(
            re.findall(
                rf"constexpr\s+(?:std::string_view|char)\s+(k\w+)(?:\[\])?"
                rf"\s*(?:=|\{{)\s*({STRING})",
                text,
            )
        )
        constants = {name: literal(value) for name, value in constants.items()}
        for match in re.finditer(r"(?<![\w:.>])(?:packstone::)?fail\s*(?=\()", text):
            arguments = arguments_at(text, match.end())
            if len(arguments) < 5 or "string_view" in arguments[1]:
                continue
            code = arguments[0].split("::")[-1]
            where, subject, got, need, *hint = [template(a, constants) for a in arguments[1:]]
            message = f"{where}: {subject}: got {got}"
            if need:
                message += f", need {need}"
            if hint and hint[0]:
                message += f"; {hint[0]}"
            found.add((path.split("/")[2], code if code in ACTIONS else "varies", message))
    return sorted(found)


def errors_page(tree):
    lines = [
        "# Errors",
        "",
        "Made by `tools/generate_docs.py` from the `fail` calls of the source. Every message",
        "has the form `room.function: subject: got X, need Y; hint`; `<...>` stands for a value.",
        "",
        "| code | what the caller can do | exit code |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{code}` | {action} | {exit} |" for code, (action, exit) in ACTIONS.items()]
    found = messages(tree)
    for room in ARROWS:
        rows = [(code, message) for r, code, message in found if r == room]
        if not rows:
            continue
        lines += ["", f"## {room}", "", "| code | message |", "| --- | --- |"]
        for code, message in rows:
            text = message.replace("|", "\\|").replace("`", "'").replace("\n", " ")
            lines.append(f"| `{code}` | `{text}` |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--packstone", default=os.path.join(ROOT, "build", "dev", "packstone"))
    options = parser.parse_args()
    pages = {
        "docs/ERRORS.md": lambda: errors_page(read_tree(ROOT)),
        check_contracts.PAGE: lambda: check_contracts.refreshed(check_contracts.page_text()),
        "docs/FORMATS.md": lambda: formats_page(options.packstone),
        "docs/MOVES.md": lambda: moves_page(options.packstone),
    }
    cases = []
    for path, make in pages.items():
        full = os.path.join(ROOT, path)
        try:
            text = make()
        except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as error:
            cases.append({"name": path, "status": "failed", "message": repr(error)})
            continue
        old = open(full, encoding="utf-8").read() if os.path.exists(full) else None
        if not options.check:
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
        stale = options.check and old != text
        message = f"{path} is not current; run tools/generate_docs.py" if stale else ""
        status = "failed" if stale else "passed"
        cases.append({"name": path, "status": status, "message": message})
    print("".join(c["message"] + "\n" for c in cases if c["message"]), end="")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(cases, f)
    return 1 if any(c["status"] == "failed" for c in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
