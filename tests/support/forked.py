"""Processes of their own that need not import torch: forks of one that has, and has done no more.

`python -m tests.support.forked MODULE` reads a line of JSON for each call of the module's `main`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class Forks:
    """A process that has imported a module; `run` forks it."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, module],
            cwd=ROOT,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()  # without more to read it ends

    def run(self, words: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
        """What `main` makes of the words, with more in the environment."""
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None
        assert told is not None
        print(json.dumps([words, dict(environment)]), file=asked, flush=True)
        answer: dict[str, Any] | None = json.loads(told.readline())
        assert answer is not None, "the process has ended without an answer"
        return answer


def _serve(name: str) -> None:
    module = import_module(name)
    for line in sys.stdin:
        words, environment = json.loads(line)
        read, write = os.pipe()
        if not (child := os.fork()):
            os.environ.update(environment)
            with os.fdopen(write, "w") as answer:
                json.dump(module.main(words), answer)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            text = answer.read()
        os.waitpid(child, 0)
        print(text or "null", flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
