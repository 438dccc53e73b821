"""Programs that can be read and are wrong: parts of trees exchanged, printed in both spellings."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fusiondsl.cli.main import main
from fusiondsl.diagnostics.codes import CODES
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.dims import expr as ex
from fusiondsl.resources import patterns_root
from fusiondsl.syntax import ast, parse, print_module
from fusiondsl.syntax.levels import BINARY
from tests.fuzz.case import Case, Target
from tests.fuzz.guard import unwatched
from tests.fuzz.mutate import LARGEST
from tests.fuzz.texts import CASES, check_text, in_yaml

_IMPORT = re.compile(r'^import "([^":]*)".*\n', re.MULTILINE)
_LARGEST_SEED = 6_000


@cache
def modules() -> tuple[ast.Module, ...]:
    """Whole programs: the shipped ops, the rules of tests, and what is reported in them."""
    folders = (patterns_root() / "ops", CASES / "check", CASES / "engine", CASES / "derived")
    files = sorted(file for folder in folders for file in folder.rglob("*.fuse"))
    found = []
    for file in files:
        text = _with_imports(file)
        diagnostics = Diagnostics()
        module = parse(Source(file.name, text), diagnostics)
        if not diagnostics.has_errors and module.items and len(text) <= _LARGEST_SEED:
            found.append(module)
    return tuple(found)


def _with_imports(file: Path, seen: tuple[str, ...] = ()) -> str:
    """One text for a file and what it imports beside it."""
    seen = (*seen, os.path.realpath(file))

    def imported(line: re.Match[str]) -> str:
        path = os.path.realpath(file.parent / line[1])
        return line[0] if path in seen or not os.path.isfile(path) else read(path)  # noqa: PTH113

    def read(path: str) -> str:
        return _with_imports(Path(path), seen) if path.endswith(".fuse") else ""

    return _IMPORT.sub(imported, file.read_text())


# --- wrong programs ------------------------------------------------------------------------------

Way = tuple[int | str, ...]

_FIXED = frozenset({(ast.Expect, "sites"), (ast.Expect, "graph")})
"""Fields where no other expression can stand, in a tree that was read."""


def _make(rng: Random) -> Case:
    module = rng.choice(modules())
    pool = rng.choice(modules()) if rng.random() < 0.3 else module
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        module = _changed(module, pool, rng)
    if rng.random() < 0.1:
        items = list(module.items)
        rng.shuffle(items)
        module = replace(module, items=tuple(items[: rng.randrange(len(items) + 1)]))
    style = "yaml" if rng.random() < 0.3 and in_yaml(module) else "fuse"
    bare = replace(module, source=Source("made.fuse", ""))  # no comments
    try:
        text = print_module(bare, style)  # type: ignore[arg-type]
    except RecursionError:
        return Case(b"", ".fuse")
    return Case(text.encode("utf-8", "surrogateescape")[:LARGEST], f".{style}")


def _parts(node: Any, path: Way = ()) -> Iterator[tuple[Way, Any]]:
    """Everything below `node`, with the way to it; expressions may nest deeply."""
    waiting: list[tuple[Way, Any]] = [(path, node)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        if isinstance(node, tuple):
            waiting += [((*path, i), part) for i, part in enumerate(node)]
        elif is_dataclass(node) and not isinstance(node, Span | Source):
            names = (f.name for f in fields(node) if (type(node), f.name) not in _FIXED)
            waiting += [((*path, name), getattr(node, name)) for name in names]


def _put(node: Any, path: Way, value: Any) -> Any:
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(node, tuple):
        assert isinstance(first, int)
        return (*node[:first], _put(node[first], rest, value), *node[first + 1 :])
    return replace(node, **{str(first): _put(getattr(node, str(first)), rest, value)})


def _changed(module: ast.Module, pool: ast.Module, rng: Random) -> ast.Module:
    parts = [(path, node) for path, node in _parts(module.items) if _changes(node)]
    if not parts:
        return module
    path, node = rng.choice(parts)
    value = _other(node, pool, rng)
    changed: ast.Module = replace(module, items=_put(module.items, path, value))
    return changed


def _changes(node: Any) -> bool:
    if isinstance(node, tuple):
        return len(node) > 0 and all(map(is_dataclass, node))
    return isinstance(
        node, ex.Expr | ast.Ident | ast.TensorType | ast.ScalarType | ast.Param | ast.Statement
    )


def _other(node: Any, pool: ast.Module, rng: Random) -> Any:
    if isinstance(node, tuple):
        return _other_tuple(node, pool, rng)
    if isinstance(node, ast.Ident):
        return replace(node, name=rng.choice(_names(pool)))
    if isinstance(node, ex.Expr):
        return _other_expression(node, pool, rng)
    kinds = (ast.TensorType, ast.ScalarType) if _is_type(node) else (type(node),)
    found = [part for _, part in _parts(pool.items) if isinstance(part, kinds)]
    return rng.choice(found or [node])


def _is_type(node: Any) -> bool:
    return isinstance(node, ast.TensorType | ast.ScalarType)


def _other_tuple(node: tuple[Any, ...], pool: ast.Module, rng: Random) -> tuple[Any, ...]:
    at = rng.randrange(len(node))
    match rng.randrange(4):
        case 0:
            return node[:at] + node[at + 1 :]
        case 1:
            return (*node[:at], node[at], *node[at:])
        case 2:
            mixed = list(node)
            rng.shuffle(mixed)
            return tuple(mixed)
        case _:
            same = [p for _, p in _parts(pool.items) if isinstance(p, type(node[at]))]
            return (*node[:at], rng.choice(same or [node[at]]), *node[at:])


def _names(pool: ast.Module) -> list[str]:
    found = {part.name for _, part in _parts(pool.items) if isinstance(part, ast.Ident)}
    found |= {part.id for _, part in _parts(pool.items) if isinstance(part, ex.Name)}
    return [*sorted(found), *_NAMES]


_NAMES = (
    "bf16", "any", "fp8", "tokens", "t", "H", "_", "env.arch", "env.nothing", "x", "round", "zz",
    "model.hidden_size", "round?", "a.b.c.d",
)  # fmt: skip
_LITERALS: tuple[Any, ...] = (
    0, 1, 2, 3, 7, 128, 2**31, 2**62, 2**63 - 1, 0.0, 1.0, 1e-6, 1e308, 5e-324, 0.1, "", "x",
    "gfx942", "\u2028", True, False, None,
)  # fmt: skip


def _other_expression(node: ex.Expr, pool: ast.Module, rng: Random) -> ex.Expr:
    known = [part for _, part in _parts(pool.items) if isinstance(part, ex.Expr)]
    match rng.randrange(9):
        case 0 | 1:
            return rng.choice(known or [node])
        case 2:
            return ex.Name(rng.choice(_names(pool)))
        case 3:
            return ex.Literal(rng.choice(_LITERALS))
        case 4:
            operator = rng.choice(sorted(BINARY))
            sides = [node, rng.choice(known or [node])]
            rng.shuffle(sides)
            return ex.Binary(operator, *sides)
        case 5:
            return ex.Binary(rng.choice(("/", "%", "//", "**", "*")), node, _number(rng))
        case 6:
            return _deep(node, rng)
        case 7:
            calls = [part for part in known if isinstance(part, ex.Call)]
            return ex.Call(rng.choice(calls).func if calls else "min", (node,) * rng.randrange(4))
        case _:
            kind = rng.choice(("-", "not", "~"))
            return ex.Unary(kind, node)


def _number(rng: Random) -> ex.Expr:
    return ex.Literal(rng.choice((0, 1, 2, 3, 64, 2**40, 2**63 - 1)))


def _deep(node: ex.Expr, rng: Random) -> ex.Expr:
    """Very many signs, sums or products around an expression."""
    times = rng.choice((3, 20, 40, 58, 62, 80))
    kind = rng.randrange(4)
    for _ in range(times):
        match kind:
            case 0:
                node = ex.Unary("-", node)
            case 1:
                node = ex.Binary("+", node, ex.Literal(1))
            case 2:
                node = ex.Binary("*", ex.Literal(2), node)
            case _:
                node = ex.Binary("%", ex.Literal(7), node)
    return node


# --- what must hold ------------------------------------------------------------------------------


def check_program(case: Case) -> str:
    """`check` and `prove` finish with their exit codes, the same for both spellings."""
    if check_text(case) != "read":
        return "refused"
    return _check_in(_folder(), case)


@cache
def _folder() -> Path:
    """For the programs of one process."""
    with unwatched():
        folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Path(folder.name)


def _check_in(folder: Path, case: Case) -> str:
    file = _written(folder / f"program{case.suffix}", case.data)
    code, found = _run("check", file)
    proved, _ = _run("prove", file)
    assert code in (0, 2, 3), code
    assert proved == code, (proved, code)
    other = _in_the_other_spelling(case)
    if other is not None:
        again, same = _run("check", _written(folder / f"again{other.suffix}", other.data))
        assert again == code, (code, again)
        assert same == found, (found, same)
    return "wrong" if code else "right"


def _written(file: Path, data: bytes) -> Path:
    with unwatched():
        file.write_bytes(data)
    return file


def _run(command: str, file: Path) -> tuple[int, Counter[tuple[str, str]]]:
    output, errors = io.StringIO(), io.StringIO()
    os.environ["FUSIONDSL_TRACEBACK"] = "1"
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(["--format", "json", command, str(file)])
    assert not errors.getvalue()
    data = json.loads(output.getvalue())
    for item in data["diagnostics"]:
        assert item["code"] in CODES
        assert item["location"] is not None, item
    return code, Counter((item["severity"], item["code"]) for item in data["diagnostics"])


def _in_the_other_spelling(case: Case) -> Case | None:
    style = "yaml" if case.suffix == ".fuse" else "fuse"
    module = parse(Source(f"program{case.suffix}", case.data.decode()), Diagnostics())
    if style == "yaml" and not in_yaml(module):
        return None
    text = print_module(replace(module, source=Source("made.fuse", "")), style)
    return Case(text.encode(), f".{style}")


CHECK = Target("check", _make, check_program, 6, frozenset({"wrong"}), 3)
