"""Which declaration a graph target belongs to, and how its arguments are ordered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusiondsl import ir
from fusiondsl.ops.schema import schema_order

_MISSING: Any = object()


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """One argument a call in a body writes."""

    name: str
    default: Any
    """`Binding.REQUIRED` if there is none; already a graph value (`torch.dtype`, list, number)."""
    wants_float: bool
    """The schema says float, so an int in the graph is the float of that value."""
    is_plain: bool
    """A value of the graph, or a scalar that is written in one way only."""


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A declaration tied to one dispatcher op."""

    REQUIRED = _MISSING

    name: str
    """The name rules use; it has the overload where that is not the default one."""
    decl: ir.OpDecl
    names: tuple[str, ...]
    """All argument names, in schema order."""
    arguments: tuple[Argument, ...]
    returns: int
    mutated: tuple[str, ...]
    """Names of mutated arguments (`out`, `inout`) in schema order."""
    item_offset: int
    """`auto_functionalized` item i is call result i - item_offset."""
    keyword_only: frozenset[str]
    known: frozenset[str]
    """All argument names."""
    defaults: Mapping[str, Any]
    """Of the arguments a call in a body writes, those that may be omitted."""
    needed: frozenset[str]
    """Those that may not."""
    unlike: tuple[tuple[int, bool], ...]
    """(place, wants float) of arguments that the graph may write in another way: as a list, or
    as an int where the schema says float."""
    buffers: tuple[str, ...]
    """Names of write-only arguments."""
    results: tuple[str, ...]
    """Names of call results: own returns, then mutated arguments."""
    is_positional: bool
    """A call is written with all arguments by position, in the order of the declaration."""

    def written(self, args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Call arguments in declaration order as the dispatcher takes them."""
        if self.is_positional:
            return tuple(args), {}
        named = dict(zip([a.name for a in self.arguments], args, strict=True))
        positional = [n for n in self.names if n not in self.keyword_only]
        keywords = {n: named[n] for n in self.names if n in self.keyword_only}
        return tuple([named.get(n) for n in positional]), keywords


class Bindings:
    """Looks declarations up by graph target; every target is analysed once."""

    def __init__(self, program: ir.Program, dtypes: dict[str, torch.dtype]) -> None:
        self._dtypes = dtypes
        self._declared = {_full_name(decl): name for name, decl in program.ops.items()}
        self._ops = program.ops
        # By identity: hashing an overload runs Python code. The target is kept with its id.
        self._by_id: dict[int, tuple[Any, Binding | None]] = {}

    def of(self, target: Any) -> Binding | None:
        """The binding of a target, None for what no declaration covers."""
        known = self._by_id.get(id(target))
        if known is None:
            known = self._by_id[id(target)] = (target, self._bind(target))
        return known[1]

    def _bind(self, target: Any) -> Binding | None:
        real = _real(target)
        name = self._declared.get(_name_of(target) if real is None else real.name)
        if name is None:
            return None
        decl = self._ops[name]
        if real is not None and not real.takes(schema_order(decl)):
            return None
        returns = len(decl.results) if real is None else real.returns
        return self._binding(name, decl, max(returns, 1))

    def _binding(self, name: str, decl: ir.OpDecl, own_items: int) -> Binding:
        params = decl.params
        arguments = tuple([self._argument(p) for p in params if p.kind in ("read", "inout")])
        returns = len(decl.results)
        names = tuple([p.name for p in schema_order(decl)])
        mutated = tuple([p.name for p in params if p.kind in ("out", "inout")])
        keyword_only = frozenset([p.name for p in params if p.keyword_only])
        return Binding(
            name,
            decl,
            names,
            arguments,
            returns,
            mutated,
            own_items if returns == 0 else 0,
            keyword_only,
            frozenset(names),
            {a.name: a.default for a in arguments if a.default is not _MISSING},
            frozenset([a.name for a in arguments if a.default is _MISSING]),
            tuple([(i, a.wants_float) for i, a in enumerate(arguments) if not a.is_plain]),
            tuple([p.name for p in params if p.kind == "out"]),
            (*[r.name for r in decl.results], *mutated),
            not keyword_only and names == tuple([a.name for a in arguments]),
        )

    def _argument(self, param: ir.Param) -> Argument:
        wants_float, default = _wants_float(param), param.default
        value = _MISSING if default is None else self.constant(default, wants_float=wants_float)
        return Argument(param.name, value, wants_float, _is_plain(param))

    def constant(self, operand: ir.Operand, *, wants_float: bool = False) -> Any:
        """A literal operand as the graph writes it; lists become tuples."""
        if isinstance(operand, ir.Const):
            value = operand.value
            if isinstance(value, ir.DType):
                return self._dtypes[value.name]
            return float(value) if wants_float and type(value) is int else value
        assert isinstance(operand, ir.ListOf), operand
        return tuple([self.constant(item, wants_float=wants_float) for item in operand.items])


def _wants_float(param: ir.Param) -> bool:
    return isinstance(param.type, ir.ScalarType) and param.type.kind == "float"


def _is_plain(param: ir.Param) -> bool:
    return isinstance(param.type, ir.TensorType) or not (
        param.type.is_list or param.type.kind == "float"
    )


def _full_name(decl: ir.OpDecl) -> str:
    return f"{decl.torch_name}.{decl.overload if decl.extern else 'default'}"


@dataclass(frozen=True, slots=True, eq=False)
class _Real:
    """What the process has of an op: its schema makes a new object for all that is asked of it."""

    target: torch._ops.OpOverload
    name: str
    arguments: tuple[str, ...]
    required: int
    """Arguments up to the last one without a default."""
    returns: int
    """With those that are arguments, which a declaration leaves out."""

    @staticmethod
    def of(target: torch._ops.OpOverload, schema: Any) -> _Real:
        arguments = schema.arguments
        needed = [i for i, argument in enumerate(arguments) if not argument.has_default_value()]
        return _Real(
            target,
            f"{schema.name}.{target._overloadname or 'default'}",
            tuple([argument.name for argument in arguments]),
            needed[-1] + 1 if needed else 0,
            len(schema.returns),
        )

    def takes(self, params: Sequence[ir.Param]) -> bool:
        """It names the same arguments in the same order as a declaration's snapshot.

        A newer schema may have grown trailing defaults; they are then unknown arguments, refused
        where a graph passes one.
        """
        declared = tuple([param.name for param in params])
        return self.arguments[: len(declared)] == declared and self.required <= len(declared)


_reals: dict[int, _Real] = {}
"""By identity: hashing an overload runs Python code. An overload lasts as long as its library."""


def _real(target: Any) -> _Real | None:
    if not isinstance(target, torch._ops.OpOverload):
        return None
    known = _reals.get(id(target))
    if known is None:
        known = _reals[id(target)] = _Real.of(target, target._schema)
    return known


def _name_of(target: Any) -> str:
    """Of a target that is no overload."""
    name = str(getattr(target, "name", ""))
    namespace, _, rest = name.partition(".")
    operator, _, overload = rest.partition(".")
    return f"{namespace}::{operator}.{overload or 'default'}"
