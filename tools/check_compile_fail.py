#!/usr/bin/env python3
"""Compiles each file of tests/compile_fail: its right use must compile, its wrong use must not.

usage: check_compile_fail.py [--json FILE] [--compiler CXX]

A file has the right use under `#if defined(RIGHT)` and the wrong one under `#else`; its first line
is a comment on what is proven, its second `// error: REGEX` what the compiler must say.
"""

import argparse
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def compile_one(compiler, path, *flags):
    command = [compiler, "-std=c++23", "-fsyntax-only", "-Isrc", "-Wall", "-Werror", *flags, path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stderr


def check(path, compiler):
    name = os.path.basename(path)
    case = {"name": name, "status": "failed", "message": ""}
    with open(path, encoding="utf-8") as f:
        match = re.match(r"//[^\n]*\n// error: ([^\n]+)\n", f.read())
    if not match:
        return {**case, "message": "the second line is not `// error: REGEX`"}
    code, output = compile_one(compiler, path, "-DRIGHT")
    if code:
        return {**case, "message": f"the right use does not compile\n{output}"}
    code, output = compile_one(compiler, path)
    if code == 0:
        return {**case, "message": "the wrong use compiles"}
    if not re.search(match.group(1), output):
        return {**case, "message": f"fails for another reason than {match.group(1)}\n{output}"}
    return {**case, "status": "passed"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json")
    parser.add_argument("--compiler", default="g++")
    options = parser.parse_args()
    files = sorted(glob.glob(os.path.join(ROOT, "tests", "compile_fail", "*.cc")))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        cases = list(pool.map(lambda path: check(path, options.compiler), files))
    print("".join(f"{c['name']}: {c['message']}\n" for c in cases if c["message"]), end="")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(cases, f)
    return 1 if not cases or any(c["status"] == "failed" for c in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
