"""Alternatives in processes of their own, measured in turn.

In one process each would run in the heap that the other left: a graph that is copied into its gaps
lies scattered in memory, and takes up to 40 % longer to rewrite. In use a process has one of them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self, TypeAlias

Questions: TypeAlias = Mapping[str, Callable[[], Any]]
"""What a side can be asked: for the milliseconds of something, or for what it works on."""


class Side:
    """A process that is set up once and then answers questions, one at a time."""

    def __init__(self, set_up: Callable[..., Questions], *args: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_answer, args=(other, set_up, args), daemon=True)
        self._process.start()
        other.close()

    def ask(self, question: str) -> Any:
        """Raises `EOFError` where the process is gone: it has said why."""
        self._pipe.send(question)
        return self._pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pipe.close()
        self._process.join()


def _answer(pipe: Connection, set_up: Callable[..., Questions], args: tuple[Any, ...]) -> None:
    questions = set_up(*args)
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return
        pipe.send(questions[question]())
