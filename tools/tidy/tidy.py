#!/usr/bin/env python3
"""Checks the rules of the house on every file.

usage: tidy.py [--root FOLDER] [--rule NAME]... [--json FILE]

Prints one line per violation, file:line: what and what to do. Exit 1 when there is any. --json
writes {"rules": {name: [violations]}}.
"""

import argparse
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rules import RULES  # noqa: E402
from source import read_tree  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    )
    parser.add_argument("--rule", action="append", choices=[r.__name__ for r in RULES])
    parser.add_argument("--json")
    options = parser.parse_args()
    tree = read_tree(os.path.abspath(options.root))
    results = {}
    for rule in RULES:
        if options.rule and rule.__name__ not in options.rule:
            continue
        results[rule.__name__] = [str(v) for v in rule(tree)]
        for violation in results[rule.__name__]:
            print(f"{violation} [{rule.__name__}]")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"rules": results}, f)
    return 1 if any(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
