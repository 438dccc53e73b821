"""Printed and saved graphs, changed: read without running any of it."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

import torch

from fusiondsl.diagnostics.codes import CODES
from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.diagnostics.source import Source
from fusiondsl.graphs import read
from fusiondsl.graphs.saved import dumps, loads
from tests.fuzz.case import Case, Target
from tests.fuzz.mutate import LARGEST, changed, encoded, noise
from tests.fuzz.texts import CASES

_UNREADABLE = 2
_FILES = 24
"""Of each kind; those that look most different."""


@cache
def printed() -> tuple[str, ...]:
    """Dumps as they are printed, of single patterns and of parts of models."""
    files = sorted((CASES / "pairs").glob("*.before.txt"), key=lambda file: file.name[::-1])
    pairs = [file.read_text() for file in files[:: max(1, len(files) // _FILES)]]
    models = [file.read_text() for file in sorted((CASES / "graphs").glob("*.txt"))]
    return (*pairs, *(_head(text) for text in models))


def _head(text: str) -> str:
    """The first lines of a graph, with its end."""
    if len(text) <= LARGEST:
        return text
    lines = text.splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if "def forward" in line)
    return "".join(lines[: start + 20]) + lines[-1]


@cache
def saved() -> tuple[str, ...]:
    found = []
    for text in printed():
        try:
            found += [dumps(graph.gm) for graph in read(text)]
        except FusionError:
            continue
    return tuple(text for text in found if len(text) <= 3 * LARGEST)


def _make(rng: Random) -> Case:
    if rng.random() < 0.3:
        return Case(_changed_json(rng.choice(saved()), rng), ".json")
    text = rng.choice(printed())
    if rng.random() < 0.1:
        return Case(noise(encoded(text), rng), ".txt")
    nasty = NASTY if rng.random() < 0.6 else CALLS
    return Case(encoded(changed(text, rng, printed(), nasty)), ".txt")


CALLS = (
    "__import__('os').system('touch made')", "open('made', 'w')", "exec('1')", "torch.load('made')",
    "torch.ops.load_library('made')", "os.remove('made')", "eval('1')", "self.__class__",
    "lambda: 1", "torch.save", "torch.ops.aten.set_.default", "torch.hub.load('a', 'b')",
    "builtins.open", "torch._C._jit_clear_class_registry()", "operator.getitem",
    "getattr(self, 'x')", "().__class__", "torch.ops.fusiondsl.nothing.default",
    "torch.ops.higher_order.x", "torch.utils.cpp_extension.load",
)  # fmt: skip
NASTY = (
    *CALLS, "s0", "s77", "u0", "Sym(s0)", "Sym(2)", "2*s0", "s0 // 0", "s0**9999999",
    "(s0 + 1)//2", "-1", "9223372036854775807", "9" * 60, "inf", "nan", "-inf", "1e999", "None",
    "True", "...", "f32[]", "f32[4][1]cpu", "f32[4][1]cuda:99", "bf16[s0, 0][0, 1]", "q9[4]",
    "f32[" + "1, " * 100 + "1]", '"', "'", "(", ")", "[", "]", "{", "}", ":", ";", ",", "=", "#",
    "\\", "\n", "    ", "return", "def", "class", "import os", "*", "**", "@", "->", "Min(s0, 4)",
    "Max(", "Mod(s0, 0)", "FloorDiv(s0, 0)", "torch", "torch.bfloat16", "torch.strided",
    "device(type='cuda', index=0)", "torch.memory_format", "l_self",
)  # fmt: skip


def _changed_json(text: str, rng: Random) -> bytes:
    if rng.random() < 0.3:
        return noise(encoded(text), rng)
    tree = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(tree, rng)
    return json.dumps(tree, separators=(",", ":")).encode()


_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**40, 2**70, 1.5, float("nan"), float("inf"), "", "x", "s0", "s0**99999999",
    "1//0", "import", "__class__", "os.system", "torch.load", "aten.neg.default",
    "operator.getitem", "builtins.eval", "call_module", "get_attr", "placeholder", "output", [], {},
    [[]], {"node": "x"}, ["a"] * 50, "0", "a.b.c",
)  # fmt: skip


def _change(tree: dict[str, Any], rng: Random) -> None:
    """A value somewhere in the tree goes, or becomes another."""
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [tree]
    while waiting:
        part = waiting.pop()
        keys = sorted(part) if isinstance(part, dict) else range(len(part))
        places += [(part, key) for key in keys]
        waiting += [part[key] for key in keys if isinstance(part[key], dict | list)]
    part, key = rng.choice(places)
    match rng.randrange(4):
        case 0:
            part[key] = rng.choice(_VALUES)
        case 1:
            del part[key]
        case 2 if isinstance(part, list):
            part.insert(key, part[key])
        case 3 if isinstance(part, list):
            rng.shuffle(part)
        case _:
            other, there = rng.choice(places)
            taken = other[there] if there in other or isinstance(other, list) else None
            part[key] = json.loads(json.dumps(taken)) if not _holds(taken, part) else None


def _holds(tree: Any, part: Any) -> bool:
    """Is `part` somewhere in `tree`?"""
    if tree is part:
        return True
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return any(_holds(item, part) for item in inner)


# --- what must hold ------------------------------------------------------------------------------


def check_dump(case: Case) -> str:
    try:
        text = case.data.decode()
    except UnicodeDecodeError:
        return "refused"
    if "\n" not in text:  # the name of a file
        return "refused"
    try:
        graphs = read(text)
        for graph in graphs:
            graph.gm.graph.lint()
    except FusionError as error:
        check_refusal(error, is_json=text.startswith("{"))
        return "refused"
    for graph in graphs:
        _check_saved(graph.gm)
    return "read"


def check_refusal(error: FusionError, *, is_json: bool) -> None:
    assert error.exit_code == _UNREADABLE
    assert error.diagnostics
    for item in error.diagnostics:
        assert item.code in CODES
        if not is_json:
            assert item.span is not None, item
            assert 0 <= item.span.start <= item.span.end <= len(item.span.source.text), item


def _check_unsaved(error: FusionError) -> None:
    assert [item.code for item in error.diagnostics] == ["FD622"]


def _check_saved(gm: torch.fx.GraphModule) -> None:
    """What was read can be saved, or is refused with the reason, and comes back the same."""
    try:
        text = dumps(gm)
    except FusionError as error:
        _check_unsaved(error)
        return
    again, _ = loads(Source("again.json", text))
    assert dumps(again) == text


GRAPHS = Target("graphs", _make, check_dump, 3, frozenset({"read", "refused"}))
