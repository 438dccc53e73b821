"""Rules that follow from a seed: what they write computes the same bits as what they match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

import torch
from torch import Tensor

from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.rules import load_source
from tests.engine.lab import LAB, OPS
from tests.properties.graphs import RULES
from tests.properties.test_mutation import RULES as MUTATING

GROUPS = (16, 32)
_TWINS = ("norm", "add_norm", "group_codes", "reduce", "act", "other", "mix", "act_sum")
"""Ops that exist a second time, in the namespace `twin`: rules write these."""

_library = torch.library.Library("twin", "FRAGMENT")

_FEW = 8


def _spoilt(x: Tensor, factor: float, right: bool) -> Tensor:
    """What a kernel leaves where it must not be used."""
    return x.contiguous() * (factor if right else float("nan"))


def _bend_left(x: Tensor) -> Tensor:
    left, right = (x.contiguous() * -2).chunk(2, -1)
    return torch.cat([left, right * float("nan")], -1)


def _like(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


_GUARDED_OPS: tuple[tuple[str, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]], ...] = (
    ("soft(Tensor x) -> Tensor", lambda x: x.contiguous() * 1.25, _like),
    ("soft_few(Tensor x) -> Tensor", lambda x: _spoilt(x, 1.25, len(x) <= _FEW), _like),
    ("soft_many(Tensor x) -> Tensor", lambda x: _spoilt(x, 1.25, len(x) > _FEW), _like),
    ("bend(Tensor x) -> Tensor", lambda x: x.contiguous() * -2, _like),
    ("bend_left(Tensor x) -> Tensor", _bend_left, _like),
    (
        "left(Tensor x) -> Tensor",
        lambda x: x[:, : x.shape[1] // 2] + 1.0,
        lambda x: x.new_empty(x.shape[0], x.shape[1] // 2),
    ),
)
_GUARDED_DECLARED = """
extern op twin.soft(x: D[t, H]) -> D[t, H]
extern op twin.soft_few(x: D[t, H]) -> D[t, H]
extern op twin.soft_many(x: D[t, H]) -> D[t, H]
extern op twin.bend(x: D[t, H]) -> D[t, H]
extern op twin.bend_left(x: D[t, H]) -> D[t, H]
extern op twin.left(x: D[t, H]) -> D[t, H / 2]
"""
GUARDED = f"""
rule few(x: D[tokens, H]) {{
  match {{ y = twin.soft(x) }}
  replace {{ y = twin.soft_few(x) }}
  where {{ rows: tokens <= {_FEW} }}
}}
rule many(x: D[tokens, H]) {{
  match {{ y = twin.soft(x) }}
  replace {{ y = twin.soft_many(x) }}
  where {{ rows: tokens > {_FEW} }}
}}
rule left(x: D[tokens, H]) {{
  match {{ y = twin.bend(x) }}
  replace {{ y = twin.bend_left(x) }}
  where {{ read: read_as(y, twin.left.x) }}
}}
"""
"""Rules whose targets are right for some sizes or readers only, and show where they are not."""


def _register() -> None:
    for schema, run, like in _GUARDED_OPS:
        _library.define(schema, tags=(torch.Tag.needs_exact_strides,))
        name = schema.partition("(")[0]
        _library.impl(name, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"twin::{name}", like, lib=_library)
    for schema, implementation, fake in OPS:
        name = schema.partition("(")[0]
        if name in _TWINS:
            _library.define(schema, tags=(torch.Tag.needs_exact_strides,))
            _library.impl(name, implementation, "CompositeExplicitAutograd")
            torch.library.register_fake(f"twin::{name}", fake, lib=_library)


_register()


def _declared(text: str) -> str:
    """The declarations of the twins."""
    parts = text.split("extern op ")
    found = [part for part in parts if part.removeprefix("lab.").partition("(")[0] in _TWINS]
    return "".join("extern op " + part.replace("lab.", "twin.", 1) for part in found)


DECLARED = LAB + _declared(LAB) + _GUARDED_DECLARED


@dataclass(frozen=True)
class Step:
    """One call of a source: names of values, texts and numbers."""

    op: str
    args: tuple[str, ...]
    results: tuple[str, ...]

    def text(self, names: Callable[[str], str], twin: bool) -> str:
        args = [names(arg) for arg in self.args]
        results = ", ".join(map(names, self.results))
        if self.op == "+":
            return f"{results} = {args[0]} + {args[1]}"
        return f"{results} = {'twin' if twin else 'lab'}.{self.op}({', '.join(args)})"


@dataclass(frozen=True)
class Made:
    """A rule as data: planted in graphs, and printed."""

    name: str
    steps: tuple[Step, ...]
    shown: frozenset[str]
    """Values that the rule gives back, which others may read."""

    @property
    def inputs(self) -> list[str]:
        given = {name for step in self.steps for name in step.results}
        read = dict.fromkeys(arg for step in self.steps for arg in step.args)
        return [name for name in read if name[0] in "xw" and name not in given]

    def text(self) -> str:
        types = {"x": "D[t.., H]", "w": "D[H]"}
        params = [f"{name}: {types[name[0]]}" for name in self.inputs]
        params += [f"{name}: {kind}" for name, kind in _SCALARS if self._reads(name)]

        def inner(name: str) -> str:
            return name if name in self.shown or name in self.inputs else _renamed(name, self)

        match = "; ".join(step.text(str, False) for step in self.steps)
        replace = "; ".join(step.text(inner, True) for step in self.steps)
        return (
            f"rule {self.name}({', '.join(params)}) {{\n  match {{ {match} }}\n"
            f"  replace {{ {replace} }}\n}}\n"
        )

    def _reads(self, name: str) -> bool:
        return any(name in step.args for step in self.steps)


_SCALARS = (("eps", "float"), ("by", "int"), ("group", "str"))


def _renamed(name: str, rule: Made) -> str:
    made = {result for step in rule.steps for result in step.results}
    return f"own_{name}" if name in made else name


def made_rule(name: str, rng: Random) -> Made:
    """A few calls, each of which reads an earlier one or an input."""
    steps: list[Step] = []
    read: set[str] = set()

    def value() -> str:
        latest = [v for step in steps for v in step.results if v[0] == "v"][-2:]
        found = rng.choice(latest) if latest and rng.random() < 0.8 else f"x{rng.randrange(2)}"
        read.add(found)
        return found

    for number in range(rng.choice((1, 2, 2, 3, 4))):
        steps.append(_step(number, value, rng))
    results = [result for step in steps for result in step.results]
    shown = {result for result in results if result not in read or rng.random() < 0.3}
    return Made(name, tuple(steps), frozenset(shown))


def _step(number: int, value: Callable[[], str], rng: Random) -> Step:
    one, two = (f"v{number}",), (f"v{number}", f"v{number}b")
    weight = f"w{rng.randrange(2)}"
    match rng.randrange(9):
        case 0:
            return Step("act", (value(),), one)
        case 1:
            return Step("other", (value(),), one)
        case 2:
            return Step("reduce", (value(), rng.choice(('"tp"', "group"))), one)
        case 3:
            return Step("norm", (value(), weight, "eps"), one)
        case 4:
            return Step("add_norm", (value(), value(), weight, "eps"), two)
        case 5:
            group = rng.choice(("by", "16", "32"))
            return Step("group_codes", (value(), group), (f"q{number}", f"s{number}"))
        case 6:
            return Step("mix", (value(), "[1]"), one)
        case 7:
            return Step("act_sum", (value(), value()), two)
        case _:
            return Step("+", (value(), value()), one)


@dataclass(frozen=True)
class RuleSet:
    text: str
    made: tuple[Made, ...]
    known: tuple[str, ...]
    """Names of the rules of `tests.properties` among them."""
    guarded: bool = False


@cache
def rule_set(number: int) -> RuleSet:
    """The same in every process; rules that cannot stand beside the others are left out."""
    rng = Random(f"rules {number}")
    known = [name for name in sorted(RULES) if rng.random() < 0.5]
    mutating = MUTATING if rng.random() < 0.4 else ""
    if mutating:
        known = [name for name in known if name not in mutating]
    text = "".join(RULES[name] for name in known) + mutating
    guarded = rng.random() < 0.4
    text += GUARDED if guarded else ""
    made = [made_rule(f"made{i}", rng) for i in range(rng.choice((1, 2, 4, 6)))]
    while not _fits(text, made):
        made.pop(rng.randrange(len(made)))
    text += "".join(rule.text() for rule in made)
    return RuleSet(text, tuple(made), tuple(known), guarded)


def _fits(text: str, made: list[Made]) -> bool:
    try:
        load_source(DECLARED + text + "".join(rule.text() for rule in made))
    except FusionError:
        return not made
    return True


@cache
def compiled(text: str) -> CompiledRules:
    return load_source(DECLARED + text).compile()
