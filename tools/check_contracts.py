#!/usr/bin/env python3
"""Checks docs/contracts.md, the table of the numbered contracts.

usage: check_contracts.py [--json FILE]

Every number of every section has exactly one row; a row names tests that exist, in the column that
tools/generate_docs.py writes from the names of the tests: a test of contract B13 is named B13_...
(TEST(Suite, B13_...) or def test_B13_...). Tests of other names stay where a person wrote them. The
state is `green` (needs a test), `open`, or a reason in words.
"""

import argparse
import glob
import json
import os
import re
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
PAGE = "docs/contracts.md"
SECTIONS = {"B": 57, "C": 49, "D": 97, "E": 28}
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \| (.+?) \| (.+?) \|$")
CPP_TEST = re.compile(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.M)
PYTHON_TEST = re.compile(r"^class (\w+)|^    def (test_\w+)", re.M)


def python_tests(text):
    names, suite = [], ""
    for match in PYTHON_TEST.finditer(text):
        if match.group(1):
            suite = match.group(1)
        else:
            names.append(f"{suite}.{match.group(2)}")
    return names


def all_tests():
    """Names of all tests, as Suite.Name."""
    names = set()
    for path in glob.glob(os.path.join(ROOT, "src", "**", "*_test.cc"), recursive=True):
        with open(path, encoding="utf-8") as f:
            names.update(".".join(m.groups()) for m in CPP_TEST.finditer(f.read()))
    for folder in ("tests", "tools"):
        pattern = os.path.join(ROOT, folder, "**", "*_test.py")
        for path in glob.glob(pattern, recursive=True):
            with open(path, encoding="utf-8") as f:
                names.update(python_tests(f.read()))
    return names


def number_of(test):
    match = re.match(r"(?:test_)?([A-Z]\d+)_", test.split(".")[1])
    return match.group(1) if match else None


def row_tests(column):
    return re.findall(r"`([^`]+)`", column)


def refreshed(text):
    """The page with its column of tests as the tests are named now."""
    tests = all_tests()
    lines = []
    for line in text.split("\n"):
        match = ROW.match(line)
        if match:
            number, phrase, column, state = match.groups()
            kept = [t for t in row_tests(column) if t in tests and number_of(t) is None]
            named = sorted({t for t in tests if number_of(t) == number} | set(kept))
            cell = ", ".join(f"`{t}`" for t in named) or "-"
            line = f"| {number} | {phrase} | {cell} | {state} |"
        lines.append(line)
    return "\n".join(lines)


def numbers():
    return [f"{s}{i}" for s, count in SECTIONS.items() for i in range(1, count + 1)]


def page_text():
    with open(os.path.join(ROOT, PAGE), encoding="utf-8") as f:
        return f.read()


def check(text, tests):
    """Cases: one per section for its numbers, one for tests, one for states."""
    rows = [m.groups() for m in map(ROW.match, text.split("\n")) if m]
    found = [row[0] for row in rows]
    wrong = [n for n in numbers() if found.count(n) != 1]
    unknown = sorted(set(found) - set(numbers()))
    yield "one row for every number", [f"{n}: {found.count(n)} rows" for n in wrong] + unknown
    yield (
        "named tests exist",
        [f"{r[0]}: no test {t}" for r in rows for t in row_tests(r[2]) if t not in tests],
    )
    faults = []
    for number, _, column, state in rows:
        if state == "green" and not row_tests(column):
            faults.append(f"{number}: green without a test")
        if state not in ("green", "open") and len(state.split()) < 3:
            faults.append(f"{number}: state {state} is neither green, open nor a reason")
    yield "states", faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json")
    options = parser.parse_args()
    cases = []
    for name, faults in check(page_text(), all_tests()):
        print("".join(fault + "\n" for fault in faults), end="")
        status = "failed" if faults else "passed"
        cases.append({"name": name, "status": status, "message": "\n".join(faults)})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(cases, f)
    return 1 if any(c["status"] == "failed" for c in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
