"""Run Flask-Session's own tests against `KeysteadSessions`: `python flask_session_own_suite.py SOURCE URL`.

SOURCE is the unpacked source distribution of Flask-Session 0.5, the last one that contains its tests. Prints a JSON
object: how many tests ran, and which failed. Each of its session types is ours.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from types import ModuleType
from unittest import TestResult, defaultTestLoader

from flask import Flask

from keystead.integrations.flask import KeysteadSessions


def main(source: str, url: str) -> None:
    def session(app: Flask) -> KeysteadSessions:
        return KeysteadSessions(app, url)

    sys.modules["flask_session"] = replaced = ModuleType("flask_session")
    replaced.Session = session  # type: ignore[attr-defined]
    sys.path.insert(0, source)
    result = TestResult()
    defaultTestLoader.loadTestsFromModule(import_module("test_session")).run(result)
    failed = {one.id().split(".")[-1]: text[-600:] for one, text in [*result.failures, *result.errors]}
    print(json.dumps({"ran": result.testsRun, "skipped": [], "failed": failed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
