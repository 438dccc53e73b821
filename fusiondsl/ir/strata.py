"""Which rules may match what others write: chains, and the strata in which rules run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from fusiondsl.ir.program import Call, Form, OpDecl, Rule

PRIMITIVE = "prim."


def admitted_forms(rule: Rule, call: Call, ops: Mapping[str, OpDecl]) -> Iterator[Form]:
    """The forms of a matched op whose differences the rule allows."""
    decl = ops.get(call.op)
    allowed = {a.kind for a in rule.allow if a.value is None or a.value in call.results}
    for form in () if decl is None else decl.forms:
        if not form.differs or {d.kind for d in form.differs} <= allowed:
            yield form


def written_ops(rule: Rule) -> frozenset[str]:
    """The ops, primitives apart, that a rule writes."""
    return frozenset(c.op for c in rule.replace if not c.op.startswith(PRIMITIVE))


def read_ops(
    rule: Rule, ops: Mapping[str, OpDecl], spelled: dict[int, tuple[str, ...]]
) -> dict[str, str]:
    """The ops, primitives apart, that a rule may match, each with the op it stands for.

    `spelled` keeps what was found for a form, by identity.
    """
    found: dict[str, str] = {}
    for call in rule.match:
        if call.op.startswith(PRIMITIVE):
            continue
        found.setdefault(call.op, call.op)
        for form in admitted_forms(rule, call, ops):
            known = spelled.get(id(form))
            if known is None:
                known = spelled[id(form)] = tuple(_spelled(form.body, ops))
            for op in known:
                found.setdefault(op, call.op)
    return found


def _spelled(body: Iterable[Call], ops: Mapping[str, OpDecl]) -> Iterator[str]:
    """Ops in a body, and in the forms of those."""
    pending, seen = [call.op for call in body], set[str]()
    while pending:
        op = pending.pop()
        if op.startswith(PRIMITIVE) or op in seen:
            continue
        seen.add(op)
        yield op
        if op in ops:
            pending.extend(call.op for form in ops[op].forms for call in form.body)


def _written_reads(
    rules: Sequence[Rule], ops: Mapping[str, OpDecl], written: AbstractSet[str]
) -> dict[str, list[str]]:
    """By rule, the ops that it may match and that some rule writes."""
    spelled: dict[int, tuple[str, ...]] = {}
    behind = _spelled_with(ops, written)
    reads: dict[str, list[str]] = {}
    for rule in rules:
        found: AbstractSet[str] = {call.op for call in rule.match}
        if not behind.isdisjoint(found):
            found = read_ops(rule, ops, spelled).keys()
        reads[rule.name] = sorted(found & written)
    return reads


def _spelled_with(ops: Mapping[str, OpDecl], written: AbstractSet[str]) -> frozenset[str]:
    """Ops that have one of these in a form, or in a form of an op that a form has."""
    spelled = {
        name: {call.op for form in decl.forms for call in form.body}
        for name, decl in ops.items()
        if decl.forms
    }
    found: set[str] = set()
    while True:
        more = [n for n, has in spelled.items() if not (has.isdisjoint(written | found))]
        if len(more) == len(found):
            return frozenset(found)
        found.update(more)


def strata(rules: Sequence[Rule], ops: Mapping[str, OpDecl]) -> dict[str, int]:
    """A rule whose source has another rule's target op, in any spelling, runs after that rule."""
    writers: dict[str, list[Rule]] = {}
    for rule in rules:
        for op in sorted(written_ops(rule)):
            writers.setdefault(op, []).append(rule)
    level = {rule.name: 0 for rule in rules}
    reads = _written_reads(rules, ops, writers.keys())
    # A chain is at most as long as there are rules that read a target; cycles are refused by the
    # checker, so the bound is never reached.
    for _ in range(sum(1 for found in reads.values() if found) + 1):
        changed = False
        for rule in rules:
            for op in reads[rule.name]:
                for earlier in writers[op]:
                    if earlier is rule or op in written_ops(rule):
                        continue
                    if level[rule.name] <= level[earlier.name]:
                        level[rule.name] = level[earlier.name] + 1
                        changed = True
        if not changed:
            break
    return level
