#!/usr/bin/env python3
"""Runs the unittest cases of one Python file and writes their results as JSON.

usage: unittest_json.py FILE RESULT.json

RESULT.json is a list of {"name", "status": "passed" | "failed" | "skipped", "message"}.
"""

import importlib.util
import json
import os
import sys
import traceback
import unittest

sys.dont_write_bytecode = True


class Recorder(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.cases = {}

    def put(self, test, status, message=""):
        name = test.id().removeprefix("tested.")
        known = self.cases.get(name)
        if known is None or known["status"] == "passed":
            self.cases[name] = {"name": name, "status": status, "message": message}

    def addSuccess(self, test):
        self.put(test, "passed")

    def addFailure(self, test, err):
        self.put(test, "failed", "".join(traceback.format_exception(*err)))

    def addError(self, test, err):
        self.addFailure(test, err)

    def addSkip(self, test, reason):
        self.put(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self.put(test, "passed")

    def addUnexpectedSuccess(self, test):
        self.put(test, "failed", "passed, but was expected to fail")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.put(test, "failed", f"{subtest}: " + "".join(traceback.format_exception(*err)))


def main():
    path, result_path = sys.argv[1:3]
    recorder = Recorder()
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        spec = importlib.util.spec_from_file_location("tested", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["tested"] = module
        spec.loader.exec_module(module)
        unittest.defaultTestLoader.loadTestsFromModule(module).run(recorder)
        cases = list(recorder.cases.values())
    except Exception:
        cases = [{"name": "import", "status": "failed", "message": traceback.format_exc()}]
    with open(result_path, "w", encoding="utf-8") as f:
        json.dump(cases, f)


if __name__ == "__main__":
    main()
