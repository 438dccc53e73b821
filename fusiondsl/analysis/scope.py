"""The names of one op or rule: parameters, sizes, dtypes, lets, values."""

from __future__ import annotations

from collections.abc import Iterator

from fusiondsl.analysis.names import RESERVED, Visible, fact_names
from fusiondsl.analysis.sizes import Sizes
from fusiondsl.decl.dtypes import ANY, DTYPES, FP8
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims.expr import Expr
from fusiondsl.ir.program import ScalarType, TensorType
from fusiondsl.target import ENV_FACTS


class Scope:
    """What a name means inside one op or rule. A `None` type is one already reported as broken."""

    def __init__(self, visible: Visible, lets: dict[str, Expr]) -> None:
        self.visible = visible
        self.file_lets = lets
        self.tensors: dict[str, TensorType | None] = {}
        self.scalars: dict[str, ScalarType] = {}
        self.dims: set[str] = set()
        self.spreads: set[str] = set()
        self.dtype_vars: set[str] = set()
        self.lets: dict[str, Expr] = {}
        self.spans: dict[str, Span] = {}
        self.used: set[str] = set()
        self.present: set[str] = set()
        """Optional tensors that a condition says are not `none`."""
        self.sizes = Sizes()

    @property
    def diagnostics(self) -> Diagnostics:
        return self.visible.diagnostics

    # --- defining ------------------------------------------------------------------------------

    def claim(self, name: str, span: Span, what: str) -> bool:
        """Takes a new name; False, and a diagnostic, if it is taken."""
        if name in RESERVED:
            self.diagnostics.error("FD104", f"`{name}` is a word of the language", span)
            return False
        first = self.spans.get(name)
        if first is not None and first != span:
            self.diagnostics.error(
                "FD108",
                f"{what} `{name}` has a name that is already bound",
                span,
                labels=[Label(first, "bound here")],
            )
            return False
        self.spans[name] = span
        return True

    def add_tensor(self, name: str, tensor: TensorType | None) -> None:
        self.tensors[name] = tensor

    def add_dim(self, name: str, span: Span | None, *, spread: bool = False) -> None:
        (self.spreads if spread else self.dims).add(name)
        if span is not None:
            self.spans.setdefault(name, span)

    # --- asking --------------------------------------------------------------------------------

    def let(self, name: str) -> Expr | None:
        if name in self.lets:
            return self.lets[name]
        found = self.visible.find(self.visible.definitions.lets, name)
        return self.file_lets.get(name) if found is not None else None

    def is_size(self, name: str) -> bool:
        return name in self.dims or name in self.spreads

    def is_dtype(self, name: str) -> bool:
        """A dtype as a value: concrete, `fp8`, or a variable of this scope."""
        return name in DTYPES or name == FP8 or name in self.dtype_vars

    def is_dtype_param(self, name: str) -> bool:
        scalar = self.scalars.get(name)
        return scalar is not None and scalar.kind == "dtype" and not scalar.is_list

    def dtype_set(self, name: str) -> tuple[str, ...] | None:
        return self.visible.set_members(name)

    def is_known_dtype(self, name: str) -> bool:
        return (
            name == ANY
            or self.is_dtype(name)
            or self.is_dtype_param(name)
            or self.dtype_set(name) is not None
        )

    def names(self) -> Iterator[str]:
        """Every name an expression could mean, for suggestions."""
        yield from self.tensors
        yield from self.scalars
        yield from self.dims
        yield from self.spreads
        yield from self.dtype_vars
        yield from self.lets
        yield from self.file_lets
        yield from DTYPES
        yield FP8
        yield from self.visible.definitions.sets

    def unknown_name(self, name: str, span: Span | None) -> None:
        if name.partition(".")[0] in ("env", "model"):
            self.visible.unknown("FD115", "fact", name, span, fact_names())
            return
        definitions = self.visible.definitions
        hidden = definitions.lets if name in definitions.lets else None
        self.visible.unknown("FD110", "name", name, span, self.names(), hidden)


def is_fact(name: str) -> bool:
    return name in ENV_FACTS
