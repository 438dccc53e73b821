"""What the checker says about two rules, against the engine on graphs that hold both sources."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import RefusalKind
from fusiondsl.ir.program import Program
from tests.support.judge import CONTEST, applied, checked, judge

TARGETS = "".join(
    f"op t{name}{inputs}{outputs}("
    + ", ".join(f"x{i}: D[t.., H]" for i in range(inputs))
    + ") -> ("
    + ", ".join(f"y{i}: D[t.., H]" for i in range(outputs))
    + ") { means axiom }\n"
    for name in "ab"
    for inputs in (1, 2, 3, 4)
    for outputs in (1, 2, 3, 4)
)
OPS = f"""
op f(x: D[t.., H]) -> (y: D[t.., H]) {{ means axiom }}
op g(x: D[t.., H], n: int) -> (y: D[t.., H]) {{ means axiom }}
op m(x: D[t.., H], y: D[t.., H]) -> (z: D[t.., H]) {{ means axiom }}
op pair(x: D[t.., H]) -> (y: D[t.., H], z: D[t.., H]) {{ means axiom }}
op both(x: D[t.., H]) -> (y: D[t.., H]) {{
  means {{ y = g(f(x), 1) }}
  form written {{ y = g(f(x), 1) }}
}}
{TARGETS}"""
CONDITIONS = ("H > 64", "H <= 64", "H % 48 == 0", "t > 4", "D == f32", "D in (bf16, f16)")
KINDS = ("f", "g", "m", "pair", "both", "add")
"""What a call may be; `add` is the primitive, whose operands may stand in either order."""


@dataclass
class Drawn:
    """One rule: calls as (kind, operands, literal), values numbered, inputs first."""

    calls: list[tuple[str, list[int], int | None]] = field(default_factory=list)
    inputs: int = 1
    values: int = 1
    outputs: list[int] = field(default_factory=list)
    where: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        scalars: list[str] = []
        lines = [self._line(call, number, scalars) for call, number in self._numbered()]
        inputs = [f"v{i}" for i in range(self.inputs)]
        params = ", ".join([*(f"{v}: D[t.., H]" for v in inputs), *(f"{s}: int" for s in scalars)])
        used = "".join(f"; {s} > 0" for s in scalars)
        target = f"t{name}{self.inputs}{len(self.outputs)}({', '.join(inputs)})"
        outputs = ", ".join(f"v{i}" for i in self.outputs)
        return (
            f"rule {name}({params}) {{\n  match {{ {'; '.join(lines)} }}\n"
            f"  replace {{ {outputs} = {target} }}\n"
            f"  where {{ {'; '.join(['H > 0', *self.where])}{used} }}\n}}\n"
        )

    def _numbered(self) -> list[tuple[tuple[str, list[int], int | None], int]]:
        numbered, next_value = [], self.inputs
        for call in self.calls:
            numbered.append((call, next_value))
            next_value += 2 if call[0] == "pair" else 1
        return numbered

    def _line(
        self, call: tuple[str, list[int], int | None], number: int, scalars: list[str]
    ) -> str:
        kind, operands, literal = call
        args = [f"v{i}" for i in operands]
        if kind == "add":
            return f"v{number} = {args[0]} + {args[1]}"
        if kind == "pair":
            return f"v{number}, v{number + 1} = pair({args[0]})"
        if kind == "g":
            if literal is None:
                scalars.append(f"n{number}")
            args.append(scalars[-1] if literal is None else str(literal))
        return f"v{number} = {kind}({', '.join(args)})"


@st.composite
def rules(draw: st.DrawFn) -> Drawn:
    """A connected source of one to three calls; each call after the first reads the one before."""
    numbers = draw(st.randoms(use_true_random=False))
    choose = numbers.randrange
    calls: list[tuple[str, list[int], int | None]] = []
    kinds = [KINDS[choose(len(KINDS))] for _ in range(1 + choose(3))]
    inputs = 1 + sum(kind in ("m", "add") for kind in kinds)
    spare = iter(range(1, inputs))
    last, value = 0, inputs
    for kind in kinds:
        operands = [last]
        if kind in ("m", "add"):
            operands.append(next(spare))
            numbers.shuffle(operands)
        literal = (None, 1, 2)[choose(3)] if kind == "g" else None
        calls.append((kind, operands, literal))
        last = value + (choose(2) if kind == "pair" else 0)
        value += 2 if kind == "pair" else 1
    made = list(range(inputs, value))
    read = {i for _, operands, _ in calls for i in operands}
    outputs = [v for v in made if v not in read or not choose(3)]
    where = [CONDITIONS[choose(len(CONDITIONS))] for _ in range(choose(3))]
    return Drawn(calls, inputs, value, outputs, where)


class Lab:
    """A graph to which the sources of rules are added."""

    def __init__(self, numbers: random.Random) -> None:
        self.choose = numbers.randrange
        self.mode = FakeTensorMode()
        self.dtype = (torch.bfloat16, torch.float32)[self.choose(2)]
        self.shape = (3 + 2 * self.choose(2), (48, 64, 96)[self.choose(3)])
        self.graph = fx.Graph()
        self.inputs = [self._placeholder(number) for number in range(8)]
        self.nodes: list[fx.Node] = []
        self._made: dict[str, list[list[fx.Node]]] = {}

    def _placeholder(self, number: int) -> fx.Node:
        node = self.graph.placeholder(f"x{number}")
        with self.mode:
            node.meta["val"] = torch.empty(self.shape, dtype=self.dtype)
        return node

    def _call(self, target: Callable[..., Any], *args: Any) -> fx.Node:
        node = self.graph.call_function(target, args)
        with self.mode:
            node.meta["val"] = target(*fx.map_arg(args, lambda n: n.meta["val"]))
        return node

    def add(self, rule: Drawn, free: int, *, share: bool) -> None:
        """The calls of a rule; with `share` some are taken from what is there already."""
        values = [self._input(share) for _ in range(rule.inputs)]
        for kind, operands, literal in rule.calls:
            known = self._made.setdefault(kind, [])
            if share and known and self.choose(3):
                results = known[self.choose(len(known))]
            else:
                results = self._written(kind, [values[i] for i in operands], literal or free)
                known.append(results)
            values += results
            self.nodes += results

    def _input(self, share: bool) -> fx.Node:
        if share and self.nodes and self.choose(2):
            return self.nodes[self.choose(len(self.nodes))]
        return self.inputs.pop()

    def _written(self, kind: str, operands: list[fx.Node], literal: int) -> list[fx.Node]:
        ours = torch.ops.fusiondsl
        if kind == "add":
            return [self._call(torch.ops.aten.add.Tensor, *operands)]
        if kind == "pair":
            node = self._call(ours.pair.default, *operands)
            return [self._call(operator.getitem, node, i) for i in range(2)]
        if kind == "both":
            return [self._call(ours.g.default, self._call(ours.f.default, *operands), 1)]
        if kind == "g":
            return [self._call(ours.g.default, *operands, literal)]
        return [self._call(getattr(ours, kind).default, *operands)]

    def finish(self) -> fx.GraphModule:
        kept = [node for node in self.nodes if not node.users or not self.choose(4)]
        self.graph.output(tuple(dict.fromkeys(kept)))
        return fx.GraphModule(torch.nn.Module(), self.graph)


def glued(one: Drawn, other: Drawn, numbers: random.Random) -> fx.GraphModule:
    """A graph with the calls of both rules in which some are shared, at random."""
    lab = Lab(numbers)
    for rule in (one, other):
        lab.add(rule, 1 + lab.choose(2), share=True)
    return lab.finish()


def _alone(program: Program, name: str, gm: fx.GraphModule) -> bool:
    rule = next(rule for rule in program.rules if rule.name == name)
    report = CompiledRules(replace(program, rules=(replace(rule, order=0),))).apply(
        gm, rewrite=False
    )
    return name in report.counts


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(rules(), rules(), st.randoms(use_true_random=False))
def test_contests_have_an_order_or_a_report(
    one: Drawn, other: Drawn, numbers: random.Random
) -> None:
    program, found = checked(OPS + one.text("a") + other.text("b"))
    assert all(d.code in ("FD401", "FD404", "FD405", "FD406") for d in found), found
    by_name = {rule.name: rule for rule in program.rules}
    first, second = (rule.name for rule in program.rules)
    for diagnostic in found:
        if diagnostic.witness is None:
            continue
        witness = diagnostic.witness
        if diagnostic.code == "FD401":
            for name in "ab":
                assert name in applied(program, witness, by_name[name]).counts
        else:
            verdict = judge(program, witness, by_name[first], by_name[second])
            assert verdict == CONTEST, diagnostic.code
    codes = {d.code for d in found}
    if "FD404" in codes:
        loser = next(d for d in found if d.code == "FD404").message.split("`")[1]
        assert loser == second
    wins: set[str] = set()
    for _ in range(6):
        gm = glued(one, other, numbers)
        if not (_alone(program, "a", gm) and _alone(program, "b", gm)):
            continue
        if "FD401" in codes:
            continue
        report = CompiledRules(program).apply(gm, rewrite=False)
        if "FD404" in codes:
            assert second not in report.counts
        lost = {r.rule for r in report.refused if r.kind is RefusalKind.LOST}
        wins |= {by_name[first].name} if second in lost and second not in report.counts else set()
    if wins and not codes & {"FD401", "FD404", "FD405"}:
        winner = one if first == "a" else other
        assert any(_holds(program, winner, second, free) for free in (1, 2))


def _holds(program: Program, outer: Drawn, inner: str, free: int) -> bool:
    """Does the source of `outer`, written out, have that of the rule `inner` in it?"""
    lab = Lab(random.Random(0))
    lab.add(outer, free, share=False)
    rule = next(rule for rule in program.rules if rule.name == inner)
    report = CompiledRules(replace(program, rules=(replace(rule, order=0),))).apply(
        lab.finish(), rewrite=False
    )
    return inner in report.counts or any(r.matched == r.calls for r in report.refused)
