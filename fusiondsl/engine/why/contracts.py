"""Contracts: how many sites a graph must show, read from YAML and held against audits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.engine.why.audit import Audit, Coverage
from fusiondsl.ir.contracts import Expect
from fusiondsl.syntax.files import read_source
from fusiondsl.syntax.yaml_nodes import Mapping, Node, Scalar, compose

COUNTS: dict[str, str] = {
    "sites": "fires or is fused already",
    "fires": "fires",
    "fused": "is fused already",
    "taken": "another rule fuses it",
    "close": "comes close",
}
"""What can be counted of a rule; a number alone counts `sites`."""
EVERY = "*"
"""All graphs, or rules, that are not named."""
_KEYS = ("doc", "expect")
_UNREADABLE = 2
_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Count:
    """One number a contract asks for."""

    rule: str
    of: str
    """A key of `COUNTS`."""
    number: int
    span: Span


@dataclass(frozen=True, slots=True)
class Contract:
    """What is expected of the graphs of one name."""

    graph: str
    """A name, `#` and a number, or `*`."""
    counts: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A number that is another one."""

    rule: str
    of: str
    wanted: int
    found: Coverage
    span: Span

    @property
    def number(self) -> int:
        return number_of(self.found, self.of)


def number_of(coverage: Coverage, of: str) -> int:
    number: int = getattr(coverage, of)
    return number


@dataclass(frozen=True, slots=True)
class Contracts:
    """All of one file."""

    contracts: tuple[Contract, ...]

    def of(self, name: str, number: int) -> tuple[Contract, ...]:
        """What a graph is held to; `*` is for graphs that nothing else names."""
        named = tuple(c for c in self.contracts if c.graph in (name, f"#{number}"))
        return named or tuple(c for c in self.contracts if c.graph == EVERY)


def failures(contracts: Iterable[Contract], audit: Audit) -> Iterator[Failure]:
    """Every count of the contracts that the audit does not show."""
    for contract in contracts:
        named = {count.rule for count in contract.counts}
        for count in contract.counts:
            for line in audit.coverage:
                if line.rule != count.rule and (count.rule != EVERY or line.rule in named):
                    continue
                if number_of(line, count.of) != count.number:
                    yield Failure(line.rule, count.of, count.number, line, count.span)


def broken(expect: Expect, audits: Iterable[Audit]) -> Iterator[Failure]:
    """The contract of a rule file, where its graphs together show another number of sites."""
    found = [audit.of(expect.rule) for audit in audits]
    counts = ("fires", "fused", "taken", "close")
    sums = {name: sum(getattr(line, name) for line in found) for name in counts}
    together = Coverage(expect.rule, **sums)
    if together.sites != expect.sites and expect.span is not None:
        yield Failure(expect.rule, "sites", expect.sites, together, expect.span)


# --- reading -------------------------------------------------------------------------------------


def read_contracts(
    path: str | os.PathLike[str], rules: Sequence[str], graphs: Sequence[tuple[int, str]]
) -> Contracts:
    """The contracts of a file, about these rules and these graphs, each a number and a name.

    Raises `FusionError` with all that is wrong in it: a name that nothing has would otherwise be a
    contract that always holds.
    """
    diagnostics = Diagnostics()
    name = os.fspath(path)
    source: Source | None = None
    if Path(name).suffix in (".yaml", ".yml"):
        source = read_source(name, diagnostics)
    else:
        hint = "contract files end in `.yaml` or `.yml`"
        diagnostics.error("FD005", f"`{name}` is not a contract file", None, help=hint)
    found: tuple[Contract, ...] = ()
    if source is not None:
        names = [known for _, known in graphs]
        keys = [*dict.fromkeys(names), *(f"#{number}" for number, _ in graphs), EVERY]
        root = compose(source, diagnostics)
        if root is None and not diagnostics.has_errors:
            _wrong("a mapping with `expect`", None, Span(source, 0, 0), diagnostics)
        if root is not None:
            found = tuple(_Reader(rules, keys, diagnostics).contracts(root))
    if diagnostics.has_errors:
        raise FusionError(diagnostics, _UNREADABLE)
    return Contracts(found)


class _Reader:
    def __init__(
        self, rules: Sequence[str], graphs: Sequence[str], diagnostics: Diagnostics
    ) -> None:
        self._rules = rules
        self._graphs = graphs
        self._diagnostics = diagnostics

    def contracts(self, root: Node) -> Iterator[Contract]:
        given = {}
        for key, value in self._pairs(root, "a mapping with `expect`"):
            if key.value in _KEYS:
                given[key.value] = value
            else:
                self._unknown("FD033", "key", key, _KEYS)
        if "doc" in given and not isinstance(given["doc"], Scalar):
            self._wrong("text", given["doc"])
        if "expect" not in given:
            if isinstance(root, Mapping):
                message = "the key `expect` is missing"
                self._diagnostics.error("FD034", message, _first_line(root.span))
            return
        for key, value in self._pairs(given["expect"], "a mapping from graphs to rules"):
            if key.value not in self._graphs:
                self._unknown("FD632", "graph", key, self._graphs)
            yield Contract(key.value, tuple(self._rules_of(value)))

    def _rules_of(self, node: Node) -> Iterator[Count]:
        for key, value in self._pairs(node, "a mapping from rules to counts"):
            if key.value != EVERY and key.value not in self._rules:
                self._unknown("FD631", "rule", key, self._rules)
            if isinstance(value, Scalar):
                yield from self._count(key, "sites", value, key.span.to(value.span))
                continue
            for of, number in self._pairs(value, "a number or a mapping"):
                if of.value in COUNTS:
                    yield from self._count(key, of.value, number, of.span.to(number.span))
                else:
                    self._unknown("FD033", "key", of, COUNTS)

    def _count(self, rule: Scalar, of: str, value: Node, span: Span) -> Iterator[Count]:
        text = value.value if isinstance(value, Scalar) and not value.style else ""
        if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
            message = f"expected a number of sites, found {_described(value)}"
            self._diagnostics.error("FD633", message, _first_line(value.span))
            return
        yield Count(rule.value, of, int(text), span)

    def _pairs(self, node: Node, wanted: str) -> tuple[tuple[Scalar, Node], ...]:
        if isinstance(node, Mapping):
            return node.pairs
        self._wrong(wanted, node)
        return ()

    def _wrong(self, wanted: str, node: Node) -> None:
        _wrong(wanted, node, node.span, self._diagnostics)

    def _unknown(self, code: str, what: str, key: Scalar, known: Iterable[str]) -> None:
        listed = list(known)
        shown = ", ".join(f"`{name}`" for name in listed[:8])
        hint = did_you_mean(key.value, listed) or f"there are: {shown}"
        self._diagnostics.error(code, f"unknown {what} `{key.value}`", key.span, help=hint)


def _wrong(wanted: str, node: Node | None, span: Span, diagnostics: Diagnostics) -> None:
    found = "nothing" if node is None else _described(node)
    diagnostics.error("FD034", f"expected {wanted}, found {found}", _first_line(span))


def _described(node: Node) -> str:
    if isinstance(node, Scalar):
        text = node.span.text
        return f"`{text}`" if 0 < len(text) <= 40 and "\n" not in text else "text"
    return "a mapping" if isinstance(node, Mapping) else "a list"


def _first_line(span: Span) -> Span:
    end = span.source.text.find("\n", span.start, span.end)
    return span if end < 0 else Span(span.source, span.start, end)
