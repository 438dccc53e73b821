"""The checked program: what `analysis` produces and every later part consumes.

Plain, immutable, torch-free data. Bodies are flat: one `Call` per operation, in dependency order,
nested expressions given temporaries (`%0`, `%1`, ...). Every argument of every call is present, in
the op's parameter order, omitted ones filled in with the schema's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from fusiondsl.diagnostics.source import Span
from fusiondsl.dims.expr import Call as CallExpr
from fusiondsl.dims.expr import DType, Expr, Keyword, Name, Spread
from fusiondsl.ir.contracts import Expect

# --- types -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorType:
    """`dtype` is a concrete name, `fp8`, a variable, a dtype-set name, or `any`.

    `dtype` may also name a `dtype` parameter: the result then has the dtype passed for it.
    `dims` holds `Spread` at most once and only first; other entries are dimension expressions.
    `strides` is None for contiguous.
    """

    dtype: str
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...] | None = None
    optional: bool = False

    @property
    def rank_free(self) -> bool:
        return bool(self.dims) and isinstance(self.dims[0], Spread)


@dataclass(frozen=True, slots=True)
class ScalarType:
    kind: str
    is_list: bool = False
    optional: bool = False


Type: TypeAlias = TensorType | ScalarType


# --- operands and calls ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the body, or a parameter (tensor or scalar), by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """A literal. Compared type-strictly: `1`, `1.0` and `true` are three constants."""

    value: int | float | str | bool | DType | None


@dataclass(frozen=True, slots=True)
class Anything:
    """`_`: matches any argument; never in `replace`."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A scalar or dimension expression over bound names (`H // 2`, `env.tp_size`)."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Unrounded:
    """`~name`: the value before its final rounding; only in `means`."""

    name: str


@dataclass(frozen=True, slots=True)
class ListOf:
    items: tuple[Operand, ...]


Operand: TypeAlias = Ref | Const | Anything | Computed | Unrounded | ListOf


@dataclass(frozen=True, slots=True)
class Call:
    """One operation. `op` is a key of `Program.ops`, or a primitive as `prim.mul`.

    `results` names what it binds, in the op's result order; None where the text says `_` or
    leaves trailing results out.
    """

    op: str
    args: tuple[Operand, ...]
    results: tuple[str | None, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Branch:
    """`case cond { then } else { otherwise }` in `means`."""

    condition: Expr
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


Step: TypeAlias = Call | Branch


# --- ops ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    type: Type
    kind: str = "read"
    """`read`, `out`, `inout` or `token`."""
    default: Const | ListOf | None = None
    """None: the argument is required."""
    keyword_only: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Condition:
    label: str | None
    expr: Expr
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    """`round assoc recip reduce_order neg_zero amax_floor saturate relayout unread unproved`."""
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """A spelling of a semantic op. In `body` the op's parameters are free names.

    The form binds every result of the op that its spelling has, and every parameter that is not
    fixed by `fixed`.
    """

    name: str
    body: tuple[Call, ...]
    results: tuple[str | None, ...]
    """For each result of the op: the body's name for it."""
    fixed: tuple[tuple[str, Const], ...]
    """Parameters the spelling cannot express, with the value it stands for."""
    where: tuple[Condition, ...]
    differs: tuple[Difference, ...]
    types: tuple[tuple[str, Type], ...]
    """Types of the body's values that the checker knows (views and slices at least)."""
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Impl:
    location: str
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...]
    results: Expr | None
    when: Expr | None


@dataclass(frozen=True, slots=True)
class Effect:
    resource: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Unread:
    """`unread key when keys_from_cache(l)`: then nothing depends on this argument."""

    parameter: str
    when: Expr


@dataclass(frozen=True, slots=True)
class OpDecl:
    """An op. As a *call* it takes the non-`out` parameters in order and returns `call_results`."""

    name: str
    extern: bool
    overload: str
    params: tuple[Param, ...]
    results: tuple[Result, ...]
    """The op's own returns."""
    means: Sequence[Step] | None
    """A tuple, or one that is read later."""
    axiom: bool
    forms: tuple[Form, ...]
    where: tuple[Condition, ...]
    available: tuple[Condition, ...]
    impls: tuple[Impl, ...]
    effects: tuple[Effect, ...]
    differs: tuple[Difference, ...]
    unread: tuple[Unread, ...] = ()
    doc: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def call_params(self) -> tuple[Param, ...]:
        """What a call in a body writes: everything but write-only buffers and ordering tokens."""
        return tuple([p for p in self.params if p.kind in ("read", "inout")])

    @property
    def call_results(self) -> tuple[Result, ...]:
        """Own returns, then mutated arguments (`out`, `inout`) in schema order."""
        mutated = [Result(p.name, p.type) for p in self.params if p.kind in ("out", "inout")]
        return (*self.results, *mutated) if mutated else self.results

    @property
    def torch_name(self) -> str:
        """The dispatcher name: an extern op's own, otherwise ours in namespace `fusiondsl`."""
        if self.extern:
            namespace, _, name = self.name.rpartition(".")
            return f"{namespace}::{name}"
        return "fusiondsl::" + self.name.replace(".", "_")


# --- rules -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Example:
    bindings: tuple[tuple[str, int | float | str | bool | DType], ...]
    fires: bool
    because: str | None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Readers:
    """`read_as(value, op.parameter)` in `where`: who may read a value that the rule replaces."""

    label: str | None
    value: str
    roles: tuple[tuple[str, str], ...]
    """(op, parameter): what a reader may be, and what it may read the value as."""
    given: tuple[tuple[str, str], ...] = ()
    """(parameter, scalar of the rule): what the reader must be given as well."""
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def condition(self) -> Condition:
        """As it is written."""
        roles = (Name(f"{op}.{parameter}") for op, parameter in self.roles)
        given = tuple(Keyword(parameter, Name(scalar)) for parameter, scalar in self.given)
        asked = CallExpr(READ_AS, (Name(self.value), *roles), given)
        return Condition(self.label, asked, self.span)


READ_AS = "read_as"
UNREAD = "unread"
"""The difference of a value that may be any other: nobody who may read it depends on it."""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    params: tuple[Param, ...]
    match: tuple[Call, ...]
    replace: tuple[Call, ...]
    outputs: tuple[tuple[str, str], ...]
    """(name in `match`, name in `replace`): the values replaced. Both are the written name unless
    `replace` renames it internally."""
    kept: tuple[str, ...]
    """Matched values whose producers stay whole: used in `replace`, or written `v = v`."""
    where: tuple[Condition, ...]
    allow: tuple[Difference, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    examples: Sequence[Example]
    """A tuple, or one that is read later."""
    types: tuple[tuple[str, Type], ...]
    """Inferred type of every tensor value of `match` and `replace`, temporaries included."""
    readers: tuple[Readers, ...] = ()
    """Who may read what is replaced; anybody, for values that are not named here."""
    order: int = 0
    """Position in the computed order; 0 is tried first."""
    doc: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TableRow:
    keys: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    params: tuple[str, ...]
    rows: tuple[TableRow, ...]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A question about scalars that an integration answers."""

    name: str
    params: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Everything a set of files declares, checked. Mappings are ordered by name."""

    ops: dict[str, OpDecl]
    rules: tuple[Rule, ...]
    """In the computed order, independent of file order."""
    tables: dict[str, Table]
    lets: dict[str, Const]
    dtype_sets: dict[str, tuple[str, ...]]
    files: tuple[str, ...] = ()
    predicates: dict[str, Predicate] = field(default_factory=dict)
    expects: tuple[Expect, ...] = ()
    """Tests of the files that were read; artifacts and cache keys go without them."""
