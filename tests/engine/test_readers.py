"""`read_as`: a value is replaced where everybody reads it as the rule says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusiondsl
from fusiondsl import CompiledRules, Report, Target, artifact
from fusiondsl.engine.report import RefusalKind
from fusiondsl.ops.registry import register
from fusiondsl.ops.schema import schema_text
from fusiondsl.verify.examples import run_rule
from tests.support.capture import Captured, traced

TEXT = """
extern op readers_lib.pool(x: D[T, H], weight: D[H], out_scale: float = 1.0) -> D[H]
extern op readers_lib.pool_into(inout out: D[H], x: D[T, H])
extern op readers_lib.pool_all(x: D[T, H], y: D[T, H]) -> D[H]

op readers.pool(x: D[T, H], weight: D[H]) -> (y: D[H]) {
  means { y = sum(x, 0) * weight }
  form library { y = readers_lib.pool(x, weight) }
}
op readers.gelu(x: D[T, H]) -> (y: D[T, H]) {
  means { y = x * sigmoid(1.702 * x) }
}

rule gelu(x: D[T, H]) {
  match   { y = x * sigmoid(1.702 * x) }
  replace { y = readers.gelu(x) }
  where {
    D in (f32, bf16)
    pooled: read_as(y, readers.pool.x, readers_lib.pool_into.x)
  }
  example { T = 7, H = 8, D = f32 } fires
  example { T = 7, H = 8, D = f32 } refused because pooled
}
"""
RULES = fusiondsl.load_source(TEXT)
_library = torch.library.Library("readers_lib", "FRAGMENT")
for _decl in RULES.program.ops.values():
    if _decl.extern:
        _library.define(schema_text(_decl))
_library.impl("pool", lambda x, w, s=1.0: x.sum(0) * w * s, "CompositeExplicitAutograd")
_library.impl(
    "pool_into", lambda out, x: (out.copy_(x.sum(0)), None)[1], "CompositeExplicitAutograd"
)
_library.impl("pool_all", lambda x, y: (x + y).sum(0), "CompositeExplicitAutograd")
pool = torch.ops.readers_lib

WEIGHT = torch.ones(8)


def captured(read: Callable[[Tensor, Tensor], Any]) -> Captured:
    register(RULES.program)

    def source(x: Tensor, weight: Tensor) -> Any:
        return read(x * torch.sigmoid(1.702 * x), weight)

    return traced(source, torch.ones(6, 8), WEIGHT, dynamic=False)


def applied(read: Callable[[Tensor, Tensor], Any]) -> Report:
    found = captured(read)
    report = RULES.compile(Target()).apply(found.gm)
    found.gm.graph.lint()
    return report


ALLOWED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "form": lambda y, w: pool.pool(y, w),
    "own": lambda y, w: torch.ops.fusiondsl.readers_pool(y, w),
    "twice": lambda y, w: (pool.pool(y, w), pool.pool(y, w + 1)),
    "another role": lambda y, w: (pool.pool(y, w), pool.pool_into(w + 1, y)),
    "reshape": lambda y, w: pool.pool(y.view(3, 2, 8).view(6, 8), w),
    "copy": lambda y, w: pool.pool(y.clone(), w),
    "size": lambda y, w: (pool.pool(y, w), torch.ops.aten.sym_size.int(y, 0)),
}
OTHERS: dict[str, tuple[str, Callable[[Tensor, Tensor], Any]]] = {
    "operation": ("aten.mul.Tensor", lambda y, w: (pool.pool(y, w), y * 2)),
    "part": ("aten.slice.Tensor", lambda y, w: pool.pool(y[:3], w)),
    "cast": ("aten._to_copy.default", lambda y, w: pool.pool(y.to(torch.bfloat16), w.bfloat16())),
    "output": ("graph output", lambda y, w: (pool.pool(y, w), y)),
    "view of the output": ("graph output", lambda y, w: (pool.pool(y, w), y.view(48))),
    "behind a reshape": ("aten.mul.Tensor", lambda y, w: (pool.pool(y, w), y.view(48) * 2)),
    "another op": ("readers_lib.pool_all.default", lambda y, w: pool.pool_all(y, y)),
    "list": ("aten.cat.default", lambda y, w: torch.cat([y, y])),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_readers_that_are_named(name: str) -> None:
    assert applied(ALLOWED[name]).counts == {"gelu": 1}


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_reader(name: str) -> None:
    reader, read = OTHERS[name]
    report = applied(read)
    assert report.counts == {}
    (refusal,) = report.refusals_of("gelu")
    assert (refusal.kind, refusal.label) == (RefusalKind.PREDICATE_FALSE, "pooled")
    assert refusal.message.startswith("y is read by ")
    assert refusal.message.endswith(f"({reader})")


def test_one_call_that_reads_it_as_two_parameters() -> None:
    def read(y: Tensor, w: Tensor) -> Any:
        row = y.view(8)
        return pool.pool(row.view(1, 8), row)

    register(RULES.program)
    found = traced(
        lambda x, w: read(x * torch.sigmoid(1.702 * x), w), torch.ones(1, 8), WEIGHT, dynamic=False
    )
    report = RULES.compile(Target()).apply(found.gm)
    assert report.counts == {}
    (refusal,) = report.refusals_of("gelu")
    assert refusal.message.endswith("(readers_lib.pool.default)")


def test_an_artifact_keeps_the_condition() -> None:
    loaded = artifact.loads(artifact.dumps(RULES.program, Target()))
    assert loaded.program.rules == RULES.program.rules
    found = captured(OTHERS["operation"][1])
    assert CompiledRules(loaded.program, loaded.target).apply(found.gm).counts == {}


def test_examples_read_the_value_as_the_rule_says_or_return_it() -> None:
    compiled = RULES.compile(Target())
    (rule,) = RULES.program.rules
    outcomes = list(run_rule(compiled, rule))
    assert [(o.title, o.passed) for o in outcomes] == [
        ("matches its own source", True),
        ("fires", True),
        ("refused because pooled", True),
    ]
