"""What `expect` says about graphs. No graph is read here: whether a contract holds is a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fusiondsl.analysis.modules import LoadedModule
from fusiondsl.analysis.scope import Scope, is_fact
from fusiondsl.analysis.signature import constant
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.expr import DType, Expr
from fusiondsl.ir.contracts import Expect, Given, file_of
from fusiondsl.ir.program import Const, ListOf
from fusiondsl.syntax import ast
from fusiondsl.target import ENV_FACTS, Fact

TOKENS = "tokens"
"""What a contract calls the token counts that its graph runs with."""
_KINDS: dict[str, tuple[type, str]] = {
    "int": (int, "a whole number"),
    "str": (str, "a string"),
    "bool": (bool, "`true` or `false`"),
}


def build_expects(
    modules: Iterable[LoadedModule], scope_of: Callable[[LoadedModule], Scope]
) -> tuple[Expect, ...]:
    """The contracts of all files, in their order."""
    seen: dict[object, Expect] = {}
    for module in modules:
        for item in module.tree.items:
            if isinstance(item, ast.Expect):
                _add(_Reader(item, module, scope_of(module)).read(), scope_of(module), seen)
    return tuple(seen.values())


def check_graphs(expects: Iterable[Expect], diagnostics: Diagnostics) -> None:
    """Whether the graphs are there. Who only applies the rules need not have them."""
    for expect in expects:
        file = file_of(expect.path)
        if not os.path.isfile(file):  # noqa: PTH113
            shown = expect.graph.removesuffix(expect.path[len(file) :])
            hint = did_you_mean(os.path.basename(file), _beside(file))  # noqa: PTH119
            message = f"there is no graph file `{shown}`, so the contract cannot hold"
            diagnostics.warning("FD121", message, expect.graph_span, help=hint)


def _add(found: Expect | None, scope: Scope, seen: dict[object, Expect]) -> None:
    """One number for each rule, graph and circumstance."""
    if found is None:
        return
    place = os.path.realpath(found.path)
    first = seen.setdefault((found.rule, place, frozenset(found.given), found.tokens), found)
    if first is found:
        return
    same = first.sites == found.sites
    both = f"`{found.rule}` cannot have both {first.sites} and {found.sites} sites in one graph"
    scope.diagnostics.error(
        "FD122",
        "the contract is given twice" if same else both,
        found.span,
        labels=[] if first.span is None else [Label(first.span, "first given here")],
    )


@dataclass(slots=True)
class _Reader:
    """One contract of one file."""

    written: ast.Expect
    module: LoadedModule
    scope: Scope
    _given: dict[str, Fact] = field(default_factory=dict)
    _tokens: tuple[int, int] | None = None

    def read(self) -> Expect | None:
        errors = self.scope.diagnostics.error_count
        self._check_rule()
        graph, path = str(self.written.graph.value), self._path()
        self._read_given()
        sites = self.written.sites.value
        if self.scope.diagnostics.error_count > errors or not isinstance(sites, int):
            return None
        given: Given = tuple(sorted(self._given.items()))
        rule, span = self.written.rule.name, self.written.span
        at = self.written.graph.span
        return Expect(rule, sites, graph, path, given, self._tokens, span, at)

    def _check_rule(self) -> None:
        rule, known = self.written.rule, self.scope.visible.definitions.rules
        if rule.name not in known:
            message = f"unknown rule `{rule.name}`"
            hint = did_you_mean(rule.name, known)
            self.scope.diagnostics.error("FD117", message, rule.span, help=hint)

    # --- the graph -----------------------------------------------------------------------------

    def _path(self) -> str:
        text, span = str(self.written.graph.value), self.written.graph.span
        wrong = _no_path(text)
        if wrong is not None:
            message = f"the graph of a contract lies in the folder of the file or below; {wrong}"
            fix = "state the contract beside the graph, in a file that imports the rules"
            self.scope.diagnostics.error("FD120", message, span, help=fix if text else None)
            return text
        return os.path.normpath(self.module.folder / text)

    # --- what is given -------------------------------------------------------------------------

    def _read_given(self) -> None:
        seen: dict[str, Span] = {}
        for binding in self.written.given:
            name = binding.name
            first = seen.setdefault(name.name, name.span)
            if first is not name.span:
                message = f"`{name.name}` is given twice"
                self.scope.diagnostics.error("FD106", message, name.span)
            elif name.name == TOKENS:
                self._tokens = self._token_counts(binding.value)
            else:
                self._read_fact(name, binding.value)

    def _token_counts(self, written: Expr) -> tuple[int, int] | None:
        """`7`, or `(1, 256)` from the one to the other."""
        value = constant(written)
        ends = value.items if isinstance(value, ListOf) else (value, value)
        counts = [end.value for end in ends if isinstance(end, Const) and _is_size(end.value)]
        if len(counts) == len(ends) == 2:
            low, high = counts
            assert isinstance(low, int)
            assert isinstance(high, int)
            if low <= high:
                return low, high
        message = "`tokens` is a number, or two of them: `tokens = (1, 256)`"
        self.scope.diagnostics.error("FD220", message, written.span)
        return None

    def _read_fact(self, name: ast.Ident, written: Expr) -> None:
        visible = self.scope.visible
        is_asked = visible.find(visible.definitions.predicates, name.name) is not None
        if not is_asked and not is_fact(name.name):
            self._unknown(name)
            return
        cls, wanted = _KINDS["bool" if is_asked else ENV_FACTS[name.name]]
        value = constant(written)
        if isinstance(value, Const) and type(value.value) is cls:
            assert value.value is not None
            assert not isinstance(value.value, DType)
            self._given[name.name] = value.value
            return
        message = f"`{name.name}` is {wanted}"
        self.scope.diagnostics.error("FD220", message, written.span or name.span)

    def _unknown(self, name: ast.Ident) -> None:
        visible = self.scope.visible
        if name.name.startswith(("env.", "model.")):
            visible.unknown("FD115", "fact", name.name, name.span, ENV_FACTS)
            return
        asked = visible.definitions.predicates
        known = (TOKENS, *ENV_FACTS, *asked)
        visible.unknown("FD110", "name", name.name, name.span, known, asked)


def _is_size(value: object) -> bool:
    return type(value) is int and value > 0


def _no_path(text: str) -> str | None:
    """Why `text` leads to no file below the folder, None if it does."""
    if not text or "\0" in text:
        return "this is no path"
    if os.path.isabs(text):  # noqa: PTH117
        return "this path is absolute"
    first = os.path.normpath(text).split(os.sep, 1)[0]
    return "this path leads out of it" if first == os.pardir else None


def _beside(file: str) -> Iterator[str]:
    """The names in the folder of a file that is not there."""
    try:
        names = sorted(os.listdir(os.path.dirname(file) or os.curdir))  # noqa: PTH120, PTH208
    except OSError:
        return
    yield from (name for name in names if name != os.path.basename(file))  # noqa: PTH119
