#!/usr/bin/env python3
"""Builds the dev preset and runs every suite; the last line is `N passed, N failed`.

usage: run_tests.py [--list] [--only WORD...] [--with-torch] [--no-build] [--fuzz-seconds N]

--only keeps the suites whose name contains one of the words. A suite's results are its cases; what
a failed case said is printed. Exit 1 when a case failed. --with-torch adds the suite `torch`, the
programs that need PyTorch: gigabytes of packages, or a Python that has them in
PACKSTONE_TORCH_PYTHON.
"""

import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

sys.dont_write_bytecode = True

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
BUILD = os.path.join(ROOT, "build", "dev")
CACHE = os.path.join(ROOT, ".cache")
MODELS = os.path.join(CACHE, "models")
RESULTS = os.path.join(BUILD, "results")
JOBS = len(os.sched_getaffinity(0))
MESSAGE_LINES_MAX = 60


@dataclass
class Case:
    name: str
    status: str  # passed, failed, skipped
    message: str = ""


def run(command, timeout=1500, env=None):
    """Exit code and output of a command; a time-out is exit code 124."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=timeout,
            stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})  # fmt: skip
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        return 124, (error.stdout or b"").decode(errors="replace") + f"\nno end in {timeout} s"
    except OSError as error:
        return 127, str(error)


def one_case(name, command, **options):
    code, output = run(command, **options)
    return [Case(name, "passed" if code == 0 else "failed", output if code else "")]


def result_path(name):
    os.makedirs(RESULTS, exist_ok=True)
    path = os.path.join(RESULTS, re.sub(r"\W+", "_", name) + ".json")
    if os.path.exists(path):
        os.remove(path)
    return path


def gtest_cases(binary):
    """The cases of one GoogleTest program, by its own JSON report."""
    name = os.path.basename(binary)
    path = result_path(name)
    env = {"PACKSTONE_MODELS": MODELS}
    code, output = run([binary, f"--gtest_output=json:{path}"], env=env)
    if not os.path.exists(path):
        return [Case(name, "failed", f"exit code {code}, no report\n{output}")]
    with open(path, encoding="utf-8") as f:
        report = json.load(f)
    cases = []
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            failures = test.get("failures", [])
            skipped = test["status"] != "RUN" or test["result"] != "COMPLETED"
            status = "failed" if failures else "skipped" if skipped else "passed"
            message = "\n".join(f["failure"] for f in failures)
            cases.append(Case(f"{suite['name']}.{test['name']}", status, message))
    if not cases or (code != 0 and all(c.status != "failed" for c in cases)):
        cases.append(Case(name, "failed", f"exit code {code}\n{output}"))
    return cases


def unittest_cases(path, python=sys.executable, env=None, timeout=1500):
    name = os.path.relpath(path, ROOT)
    report = result_path(name)
    runner = os.path.join(ROOT, "tools", "unittest_json.py")
    code, output = run([python, runner, path, report], timeout, env)
    if not os.path.exists(report):
        return [Case(name, "failed", f"exit code {code}, no report\n{output}")]
    with open(report, encoding="utf-8") as f:
        cases = [Case(c["name"], c["status"], c["message"]) for c in json.load(f)]
    if code != 0 or not cases:
        cases.append(Case(name, "failed", f"exit code {code}, {len(cases)} cases\n{output}"))
    return cases


def tidy_cases():
    report = result_path("tidy")
    code, output = run([sys.executable, "tools/tidy/tidy.py", "--json", report])
    if not os.path.exists(report):
        return [Case("tidy", "failed", f"exit code {code}, no report\n{output}")]
    with open(report, encoding="utf-8") as f:
        rules = json.load(f)["rules"]
    return [Case(r, "failed" if v else "passed", "\n".join(v)) for r, v in rules.items()]


def report_cases(name, command):
    """The cases of a tool that takes --json FILE and writes a list of cases there."""
    report = result_path(name)
    code, output = run(command + ["--json", report])
    if not os.path.exists(report):
        return [Case(name, "failed", f"exit code {code}, no report\n{output}")]
    with open(report, encoding="utf-8") as f:
        return [Case(c["name"], c["status"], c["message"]) for c in json.load(f)]


def virtual_environment(folder, name):
    """The Python with the pinned packages of a requirements.txt, made when missing."""
    requirements = os.path.join(folder, "requirements.txt")
    with open(requirements, "rb") as f:
        key = hashlib.sha256(f.read() + sys.version.encode()).hexdigest()
    venv = os.path.join(CACHE, name)
    python, stamp = os.path.join(venv, "bin", "python"), os.path.join(venv, "stamp")
    if os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as f:
            if f.read() == key:
                return python, ""
    shutil.rmtree(venv, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", venv],
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", requirements],
    ):
        code, output = run(command)
        if code:
            return None, f"{' '.join(command)}\n{output}"
    with open(stamp, "w", encoding="utf-8") as f:
        f.write(key)
    return python, ""


def python_jobs(folder, venv, python=None, timeout=1500):
    """The test files of a folder, by its own Python or by one that has its packages."""
    files = sorted(glob.glob(os.path.join(folder, "*_test.py")))
    if not files:
        return []
    error = ""
    if not python:
        python, error = virtual_environment(folder, venv)
    if python is None:
        return [lambda: [Case("virtual environment", "failed", error)]]
    env = {
        "PACKSTONE": os.path.join(BUILD, "packstone"), "PACKSTONE_MODELS": MODELS,
        "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error",
    }  # fmt: skip
    return [lambda f=f: unittest_cases(f, python, env, timeout) for f in files]


def interop_jobs():
    return python_jobs(os.path.join(ROOT, "tests", "interop"), "venv")


def torch_jobs():
    python = os.environ.get("PACKSTONE_TORCH_PYTHON")
    return python_jobs(os.path.join(ROOT, "tests", "interop_torch"), "torch-venv", python, 3600)


def fuzz_jobs(seconds):
    """Each libFuzzer target for a few seconds, from its seeds."""
    names = sorted(
        "fuzz_" + os.path.basename(p).removesuffix("_fuzz.cc")
        for p in glob.glob(os.path.join(ROOT, "fuzz", "*_fuzz.cc"))
    )
    if not names:
        return []
    build = os.path.join(ROOT, "build", "fuzz")
    for command in (["cmake", "--preset", "fuzz"], ["ninja", "-C", build, f"-j{JOBS}", *names]):
        code, output = run(command)
        if code:
            return [lambda: [Case("build", "failed", output)]]
    return [lambda n=n: fuzz_case(n, build, seconds) for n in names]


def fuzz_case(name, build, seconds):
    binary = next(iter(glob.glob(os.path.join(build, "**", name), recursive=True)), name)
    work = os.path.join(build, "run", name)
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    seeds = [os.path.join(ROOT, "fuzz", "corpus", name.removeprefix("fuzz_"))]
    seeds = [s for s in seeds if os.path.isdir(s)]
    code, output = run(
        [binary, f"-max_total_time={seconds}", "-seed=1", "-rss_limit_mb=4096", "-timeout=20",
         f"-artifact_prefix={work}/", "-print_final_stats=1", "-close_fd_mask=1", work, *seeds],
        timeout=seconds + 300)  # fmt: skip
    if name == "fuzz_canary":  # has a planted fault: a fuzzer that finds nothing proves nothing
        status = "passed" if code not in (0, 124, 127) else "failed"
        return [Case(name, status, output if status == "failed" else "")]
    return [Case(name, "passed" if code == 0 else "failed", output if code else "")]


def suites(options):
    """(name, function that gives the suite's jobs); a job gives cases. Jobs run side by side."""
    tool = os.path.join(ROOT, "tools")
    yield "tidy", lambda: [
        tidy_cases, lambda: unittest_cases(os.path.join(tool, "tidy", "tidy_test.py"))]  # fmt: skip
    models = [os.path.join(tool, "get_models.sh"), MODELS]
    yield "models", lambda: [lambda: one_case("fetched and checked", models)]
    for binary in sorted(glob.glob(os.path.join(BUILD, "*_test"))):
        name = os.path.basename(binary).removesuffix("_test")
        yield name, lambda b=binary: [lambda: gtest_cases(b)]
    for name in ("headers", "symbols", "compile_fail", "contracts"):
        script = os.path.join(tool, f"check_{name}.py")
        yield name, lambda n=name, s=script: [lambda: report_cases(n, [sys.executable, s])]
    docs = [sys.executable, os.path.join(tool, "generate_docs.py"), "--check"]
    yield "docs", lambda: [lambda: report_cases("docs", docs)]
    if os.path.exists(os.path.join(tool, "test_neon.sh")):
        yield "neon", lambda: [neon_cases]
    yield "interop", interop_jobs
    if options.with_torch:
        yield "torch", torch_jobs
    yield "fuzz", lambda: fuzz_jobs(options.fuzz_seconds)


def neon_cases():
    """tools/test_neon.sh cross-compiles the kernels and compares them with the reference."""
    code, output = run([os.path.join(ROOT, "tools", "test_neon.sh")])
    count = re.search(r"^(\d+) comparisons, 0 failed$", output, re.M)
    passed = code == 0 and count is not None and int(count.group(1)) > 0
    name = f"equal to the reference under qemu, {count.group(1) if count else 0} comparisons"
    return [Case(name, "passed" if passed else "failed", "" if passed else output)]


def build():
    start = time.monotonic()
    print("building; a build from nothing takes minutes", flush=True)
    for command in (["cmake", "--preset", "dev"], ["ninja", "-C", BUILD, f"-j{JOBS}"]):
        code, output = run(command, timeout=3600)
        if code:
            return [Case("build", "failed", output)]
    print(f"build: {time.monotonic() - start:.0f} s", flush=True)
    return []


def show(name, cases, seconds):
    count = {s: sum(c.status == s for c in cases) for s in ("passed", "failed", "skipped")}
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    print(f"{name:<14} {count['passed']:>6} passed, {count['failed']} failed{skipped}"
          f"   ({seconds:.1f} s)", flush=True)  # fmt: skip
    for case in cases:
        if case.status == "failed":
            lines = case.message.rstrip().split("\n")
            if len(lines) > MESSAGE_LINES_MAX:
                lines = ["..."] + lines[-MESSAGE_LINES_MAX:]
            print(f"  FAILED {name}: {case.name}")
            print("".join(f"    {line}\n" for line in lines), end="", flush=True)
        elif case.status == "skipped":
            print(f"  skipped {name}: {case.name}: {case.message}", flush=True)


def run_suite(pool, name, make_jobs):
    start = time.monotonic()
    cases = []
    for future in [pool.submit(job) for job in make_jobs()]:
        try:
            cases += future.result()
        except Exception as error:  # a broken runner is a failed case, not a lost count
            cases.append(Case("runner", "failed", repr(error)))
    show(name, cases, time.monotonic() - start)
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the names of the suites")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="suites with one of these words")
    parser.add_argument("--with-torch", action="store_true", help="the programs of PyTorch too")
    parser.add_argument("--no-build", action="store_true", help="take the build as it is")
    parser.add_argument("--fuzz-seconds", type=int, default=5, help="per fuzz target")
    options = parser.parse_args()
    cases = [] if options.no_build or options.list else build()
    broken = bool(cases)
    if broken:
        show("build", cases, 0)
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for name, make_jobs in suites(options):
            if options.only and not any(word in name for word in options.only):
                continue
            if options.list:
                print(name)
            elif not broken or name == "tidy":
                cases += run_suite(pool, name, make_jobs)
    if options.list:
        return 0
    count = {s: sum(c.status == s for c in cases) for s in ("passed", "failed", "skipped")}
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    print(f"{count['passed']} passed, {count['failed']} failed{skipped}", flush=True)
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
