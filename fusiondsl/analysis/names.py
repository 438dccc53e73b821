"""What a set of files defines, and which of it each file sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fusiondsl.analysis.modules import LoadedModule
from fusiondsl.decl.dtypes import ANY, DTYPES, FP8
from fusiondsl.decl.primitives import FUNCTIONS
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.functions import BUILTINS
from fusiondsl.ir.program import READ_AS
from fusiondsl.syntax import ast
from fusiondsl.target import ENV_FACTS

T = TypeVar("T")

RESERVED = frozenset({*DTYPES, FP8, ANY})
_CALLED = ("table", "predicate")
_FUNCTIONS = FUNCTIONS | BUILTINS.keys() | {READ_AS}
"""What tables and predicates may not be called."""


@dataclass(frozen=True, slots=True)
class Defined(Generic[T]):
    """An item and the file it stands in."""

    item: T
    module: LoadedModule
    span: Span


@dataclass(slots=True)
class Definitions:
    """Every item of every file by name; the first definition wins, later ones are reported."""

    ops: dict[str, Defined[ast.Op]] = field(default_factory=dict)
    rules: dict[str, Defined[ast.Rule | ast.Fuse]] = field(default_factory=dict)
    tables: dict[str, Defined[ast.Table]] = field(default_factory=dict)
    predicates: dict[str, Defined[ast.Predicate]] = field(default_factory=dict)
    lets: dict[str, Defined[ast.Let]] = field(default_factory=dict)
    sets: dict[str, Defined[ast.DTypeSet]] = field(default_factory=dict)


def op_key(op: ast.Op) -> str:
    """The name a call writes: the overload is part of it unless it is the default one."""
    return op.name.name if op.overload == "default" else f"{op.name.name}.{op.overload}"


def collect(modules: Iterable[LoadedModule], diagnostics: Diagnostics) -> Definitions:
    found = Definitions()
    for module in modules:
        for item in module.tree.items:
            _define(found, item, module, diagnostics)
    return found


def _define(
    found: Definitions, item: ast.Item, module: LoadedModule, diagnostics: Diagnostics
) -> None:
    match item:
        case ast.Import():
            return
        case ast.Op():
            _add("op", found.ops, op_key(item), Defined(item, module, item.name.span), diagnostics)
        case ast.Rule() | ast.Fuse():
            name = item.name if isinstance(item, ast.Rule) else item.rule
            rule: Defined[ast.Rule | ast.Fuse] = Defined(item, module, name.span)
            _add("rule", found.rules, name.name, rule, diagnostics)
        case ast.Table():
            key = item.name.name
            _add("table", found.tables, key, Defined(item, module, item.name.span), diagnostics)
        case ast.Predicate():
            key = item.name.name
            new = Defined(item, module, item.name.span)
            _add("predicate", found.predicates, key, new, diagnostics)
        case ast.Let():
            key = item.name.name
            _add("let", found.lets, key, Defined(item, module, item.name.span), diagnostics)
        case ast.DTypeSet():
            key = item.name.name
            _add("dtype set", found.sets, key, Defined(item, module, item.name.span), diagnostics)


def _add(
    kind: str,
    table: dict[str, Defined[T]],
    name: str,
    new: Defined[T],
    diagnostics: Diagnostics,
) -> None:
    if name in RESERVED or (kind in _CALLED and name in _FUNCTIONS) or name == "_":
        diagnostics.error("FD104", f"`{name}` is a word of the language", new.span)
        return
    first = table.setdefault(name, new)
    if first is not new:
        diagnostics.error(
            "FD101",
            f"the {kind} `{name}` is defined twice",
            new.span,
            labels=[Label(first.span, "first defined here")],
        )


class Visible:
    """The definitions that one file may use: its own, and those of what it imports."""

    def __init__(
        self, definitions: Definitions, module: LoadedModule, diagnostics: Diagnostics
    ) -> None:
        self.definitions = definitions
        self.module = module
        self.diagnostics = diagnostics
        self._keys = module.reachable

    def find(self, table: Mapping[str, Defined[T]], name: str) -> Defined[T] | None:
        """The definition, if this file sees it."""
        found = table.get(name)
        return found if found is not None and found.module.key in self._keys else None

    def set_members(self, name: str) -> tuple[str, ...] | None:
        found = self.find(self.definitions.sets, name)
        if found is None:
            return None
        return tuple(m.name for m in found.item.members if m.name in DTYPES or m.name == FP8)

    def unknown(
        self,
        code: str,
        what: str,
        name: str,
        span: Span | None,
        known: Iterable[str],
        table: Mapping[str, Defined[T]] | None = None,
    ) -> None:
        """Reports a name that is not known, and why or what could be meant."""
        hidden = table.get(name) if table is not None else None
        if hidden is not None:
            self.diagnostics.error(
                code,
                f"{what} `{name}` is not imported",
                span,
                labels=[Label(hidden.span, "defined here")],
                help=f'import the file that defines it: `import "{hidden.module.name}"`',
            )
            return
        self.diagnostics.error(
            code, f"unknown {what} `{name}`", span, help=did_you_mean(name, known)
        )


def check_sets(definitions: Definitions, diagnostics: Diagnostics) -> None:
    for name in sorted(definitions.sets):
        for member in definitions.sets[name].item.members:
            if member.name not in DTYPES and member.name != FP8:
                diagnostics.error(
                    "FD111",
                    f"unknown dtype `{member.name}`",
                    member.span,
                    help=did_you_mean(member.name, [*DTYPES, FP8]),
                )


def fact_names() -> list[str]:
    return sorted(ENV_FACTS)
