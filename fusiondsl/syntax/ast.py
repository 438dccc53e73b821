"""The abstract syntax. `.fuse` and `.yaml` files parse to the same tree; `printer` prints both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.dims.expr import Expr, Literal


@dataclass(frozen=True, slots=True)
class Ident:
    """A name where it is defined."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class TensorType:
    """`D[tokens.., H]`, optionally `strides (1, T)`; a trailing `?` makes it optional."""

    dtype: Ident
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...] | None
    optional: bool
    span: Span


@dataclass(frozen=True, slots=True)
class ScalarType:
    """`float`, `int`, `bool`, `str`, `dtype`, `layer`; `int[]` is a list; `?` may be `none`."""

    kind: str
    is_list: bool
    optional: bool
    span: Span


Type: TypeAlias = TensorType | ScalarType


@dataclass(frozen=True, slots=True)
class Param:
    name: Ident
    type: Type
    kind: str
    """`read` (default), `out` (write-only buffer), `inout`, or `token` (ordering dummy)."""
    default: Expr | None
    keyword_only: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Result:
    name: Ident
    """`result` where the text names none."""
    type: Type
    span: Span


@dataclass(frozen=True, slots=True)
class Target:
    """One name on the left of `=`, with an optional type (`b: fp8[T, N] = ...`); `_` drops it."""

    name: Ident
    type: Type | None


@dataclass(frozen=True, slots=True)
class Assign:
    """`q, scale = fp8_group_quant(normed, group_size = 128)`."""

    targets: tuple[Target, ...]
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Case:
    """`case x_scales is none { ... } else { ... }` inside `means`."""

    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]
    span: Span


Statement: TypeAlias = Assign | Case


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of `where` or `available`, with its optional label."""

    label: Ident | None
    expr: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Difference:
    """A named numeric difference, and the value it concerns: `round: normed`, or `recip` alone."""

    kind: Ident
    value: Ident | None
    span: Span


@dataclass(frozen=True, slots=True)
class Form:
    """One spelling of a semantic op in real graphs."""

    name: Ident
    body: tuple[Statement, ...]
    where: tuple[Condition, ...]
    differs: tuple[Difference, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Impl:
    """`impl "module:function" (args) -> (results) [when cond]`.

    The text names a Python function, or a dispatcher op as `torch:namespace::op`. `args` and
    `results` adapt the call: results are names of the op's results, `_`, or nested tuples.
    """

    location: str
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...]
    results: Expr | None
    when: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Effect:
    """`effect communicator(group)`: calls that name one resource stay in order."""

    resource: Ident
    args: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Unread:
    """`unread key when keys_from_cache(l)`: then nothing depends on this argument."""

    parameter: Ident
    when: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Import:
    path: str
    span: Span


@dataclass(frozen=True, slots=True)
class DTypeSet:
    name: Ident
    members: tuple[Ident, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Let:
    name: Ident
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class TableRow:
    keys: tuple[Expr, ...]
    """One expression a parameter; a `Wildcard` matches anything. First fitting row wins."""
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Table:
    """`table limit(arch, tp) { (gfx942, 2) = 64 MiB  ... }`, called like a function."""

    name: Ident
    params: tuple[Ident, ...]
    rows: tuple[TableRow, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Predicate:
    """`extern predicate fits(l: layer, heads: int)`: an integration supplies the answers."""

    name: Ident
    params: tuple[Param, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Op:
    name: Ident
    extern: bool
    """True: an existing torch op `namespace::name`, declared with a snapshot of its schema."""
    overload: str
    """Overload of an extern op, `default` unless written (`extern op aten.add.Tensor(...)`)."""
    params: tuple[Param, ...]
    results: tuple[Result, ...]
    means: tuple[Statement, ...] | None
    axiom: bool
    """True: `means axiom`; the meaning is a Python reference, the op a primitive of proofs."""
    forms: tuple[Form, ...]
    where: tuple[Condition, ...]
    available: tuple[Condition, ...]
    impls: tuple[Impl, ...]
    effects: tuple[Effect, ...]
    unread: tuple[Unread, ...]
    differs: tuple[Difference, ...]
    """How the kernel may differ from `means`."""
    doc: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Binding:
    """`tokens = 7` in an example, `group_size = 128` in a `fuse`."""

    name: Ident
    value: Expr


@dataclass(frozen=True, slots=True)
class Example:
    bindings: tuple[Binding, ...]
    fires: bool
    because: Ident | None
    """Label of the condition that refuses; only where `fires` is False."""
    span: Span


@dataclass(frozen=True, slots=True)
class Rule:
    name: Ident
    params: tuple[Param, ...]
    lets: tuple[Let, ...]
    match: tuple[Statement, ...]
    replace: tuple[Statement, ...]
    where: tuple[Condition, ...]
    allow: tuple[Difference, ...]
    before: tuple[Ident, ...]
    after: tuple[Ident, ...]
    examples: tuple[Example, ...]
    doc: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Fuse:
    """`fuse aiter.quant(scale, group_size = 128) as name { ... }`: a rule made from `means`."""

    target: Ident
    given: tuple[Ident, ...]
    """Parameters with a default or `?` that the rule reads all the same."""
    fixed: tuple[Binding, ...]
    name: Ident | None
    """None: the rule is called like the target, without its namespace."""
    lets: tuple[Let, ...]
    where: tuple[Condition, ...]
    allow: tuple[Difference, ...]
    keep: tuple[Ident, ...]
    """Values inside that others may read."""
    before: tuple[Ident, ...]
    after: tuple[Ident, ...]
    examples: tuple[Example, ...]
    doc: str | None
    span: Span

    @property
    def rule(self) -> Ident:
        """The name of the rule."""
        if self.name is not None:
            return self.name
        return Ident(self.target.name.rpartition(".")[2], self.target.span)


@dataclass(frozen=True, slots=True)
class Expect:
    """`expect norm_quant == 61 in graph "graphs/decoder.py" { env.arch = "gfx950" }`."""

    rule: Ident
    sites: Literal
    graph: Literal
    """A path, relative to the file; `#3` behind it is the third graph there."""
    given: tuple[Binding, ...]
    """What the target is, and with how many tokens the graph runs."""
    span: Span


Item: TypeAlias = Import | DTypeSet | Let | Table | Predicate | Op | Rule | Fuse | Expect


@dataclass(frozen=True, slots=True)
class Module:
    source: Source
    items: tuple[Item, ...]
