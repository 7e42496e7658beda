#!/usr/bin/env python3
"""Proves with nm that the library never prints, exits or aborts, except in base's check_failed, and
that the kernels of an instruction set define no function that the linker could share.

usage: check_symbols.py [--json FILE]

Looks at the undefined symbols of each archive build/dev/libpackstone_<room>.a but cli's.
"""

import argparse
import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
BANNED = re.compile(
    r"^(abort|_?exit|_Exit|quick_exit|v?f?printf|__v?f?printf_chk|puts|fputs"
    r"|putchar"
    r"|perror"
    r"|_ZSt4cout|_ZSt4cerr|_ZSt4clog|srand|rand|_ZN3fmt\w*6vprint\w*)$"
)
MAY = {("libpackstone_base.a", "check.cc.o")}


def check(archive):
    name = os.path.basename(archive)
    done = subprocess.run(["nm", "-A", "-u", archive], capture_output=True, text=True)
    found = [] if done.returncode == 0 else [done.stderr]
    for line in done.stdout.splitlines():
        match = re.match(r".*?:([^:]+):\s+[Uvw] (\S+)", line)
        if match and BANNED.match(match.group(2)) and (name, match.group(1)) not in MAY:
            found.append(
                f"{name}: {match.group(1)} calls {match.group(2)}; return an error instead"
            )
    return {"name": name, "status": "failed" if found else "passed", "message": "\n".join(found)}


def check_isa_objects():
    """A weak function in a file with a target region may hold instructions that this CPU lacks, and
    the linker may take it for the whole program."""
    archive = os.path.join(ROOT, "build", "dev", "libpackstone_kernel.a")
    done = subprocess.run(["nm", "-A", "-C", archive], capture_output=True, text=True)
    found = [] if done.returncode == 0 else [done.stderr]
    for line in done.stdout.splitlines():
        match = re.match(r".*?:(avx2|avx512)\.cc\.o:[0-9a-f]+ W (.*)", line)
        if match and "cpu_features()" not in match.group(2):
            found.append(f"{match.group(1)}.cc defines the weak {match.group(2)}; keep it unnamed")
    message = "\n".join(found)
    return {"name": "isa_objects", "status": "failed" if found else "passed", "message": message}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json")
    options = parser.parse_args()
    archives = sorted(glob.glob(os.path.join(ROOT, "build", "dev", "libpackstone_*.a")))
    cases = [check(a) for a in archives if not a.endswith("libpackstone_cli.a")]
    cases.append(check_isa_objects())
    if not archives:
        cases = [{"name": "archives", "status": "failed", "message": "no archive in build/dev"}]
    print("".join(c["message"] + "\n" for c in cases if c["message"]), end="")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(cases, f)
    return 1 if any(c["status"] == "failed" for c in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
