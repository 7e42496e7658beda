#!/usr/bin/env python3
"""Compiles each header alone, twice included; device-safe headers also as C++20 without exceptions.

usage: check_headers.py [--json FILE] [--compiler CXX]

A header whose text and whose included house headers have not changed since it passed is not
compiled again (stamps in build/dev/headers).
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tools", "tidy"))

from arrows import DEVICE_SAFE  # noqa: E402
from rules import INCLUDE, format_headers  # noqa: E402
from source import read_tree  # noqa: E402

STAMPS = os.path.join(ROOT, "build", "dev", "headers")
FLAGS = ["-x", "c++", "-fsyntax-only", "-Isrc", "-Wall", "-Wextra", "-Wshadow", "-Werror",
         "-DPACKSTONE_ASSERTS", "-ffp-contract=off", '-DPACKSTONE_SOURCE_DIR="."']  # fmt: skip


def key_of(tree, path, flags, compiler):
    """A digest of everything of the house that the compiler would read."""
    seen, todo = set(), [path]
    while todo:
        current = todo.pop()
        if current in seen or current not in tree.paths:
            continue
        seen.add(current)
        todo += [f"src/packstone/{m}" for m in INCLUDE.findall(tree.text(current))]
    digest = hashlib.sha256(" ".join([compiler, *flags]).encode())
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + tree.text(name).encode(errors="surrogateescape"))
    return digest.hexdigest()


def check(tree, path, standard, compiler):
    flags = [f"-std={standard}", *FLAGS]
    if standard == "c++20":
        flags += ["-fno-exceptions", "-fno-rtti"]
    name = path.removeprefix("src/")
    stamp = os.path.join(STAMPS, name.replace("/", "__") + "." + standard)
    key = key_of(tree, path, flags, compiler)
    case = {"name": f"{name} ({standard})", "status": "passed", "message": ""}
    if os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as f:
            if f.read() == key:
                return case
    text = f'#include "{name}"\n#include "{name}"\n'
    done = subprocess.run([compiler, *flags, "-"], cwd=ROOT, input=text, text=True,
                          capture_output=True)  # fmt: skip
    if done.returncode:
        return {**case, "status": "failed", "message": done.stderr}
    os.makedirs(STAMPS, exist_ok=True)
    with open(stamp, "w", encoding="utf-8") as f:
        f.write(key)
    return case


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json")
    parser.add_argument("--compiler", default="g++")
    options = parser.parse_args()
    tree = read_tree(ROOT)
    jobs = [(p, "c++23") for p in tree.headers() if not re.search(r"/pch\w*\.h$", p)]
    jobs += [(p, "c++20") for p in sorted({*DEVICE_SAFE, *format_headers(tree)} & {*tree.paths})]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        cases = list(pool.map(lambda job: check(tree, *job, options.compiler), jobs))
    for case in cases:
        if case["status"] == "failed":
            print(f"{case['name']}: does not compile alone\n{case['message']}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(cases, f)
    return 1 if any(c["status"] == "failed" for c in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
