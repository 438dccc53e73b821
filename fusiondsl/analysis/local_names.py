"""The names, types and conditions of one rule beside those of another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fusiondsl.analysis.exprs import conjuncts, rewrite
from fusiondsl.analysis.kernel import kernel_of, stated_conditions
from fusiondsl.analysis.side import Side, as_expr
from fusiondsl.decl.dtypes import ANY, DTYPES, FP8
from fusiondsl.dims.dim import Dim
from fusiondsl.dims.expr import DType, Expr, Name, Spread
from fusiondsl.dims.names import names
from fusiondsl.dims.values import Value
from fusiondsl.ir.program import Operand, Program, ScalarType, TensorType
from fusiondsl.target import ENV_FACTS

MOST_CANDIDATES = 40
"""How many values are tried for one name."""

LEADING = (7, 8, 4, 16, 1, 2, 3)
TRAILING = (256, 128, 64, 512, 1024, 32, 16, 8, 2048, 4096, 4, 2, 1, 3, 7)
OPEN_DTYPES = tuple(dict.fromkeys(("bf16", "f16", "f32", "f8e4m3fn", "u8", *DTYPES)))
SCALARS: Mapping[str, tuple[Any, ...]] = {
    "float": (1e-6, 1e-5, 0.5, 1.0, 2.0),
    "int": TRAILING,
    "bool": (False, True),
    "str": ("tp:0", "even", "other"),
    "layer": ("layers.0", "layers.1"),
}


_GLOBAL = (*DTYPES, FP8, *ENV_FACTS)


class LocalNames:
    """Types, conditions and scalars of one side, its own names marked as such."""

    def __init__(self, side: Side, program: Program, mark: str) -> None:
        self.side = side
        self.program = program
        self.mark = mark
        rule = side.rule
        declared = [(p.name, p.type) for p in rule.params]
        matched = {name for call in side.calls for name in call.results}
        declared += [(name, kind) for name, kind in rule.types if name in matched]
        kinds = [(name, kind) for name, kind in declared if isinstance(kind, TensorType)]
        kinds += side.types.items()
        self._scalar_types = {p.name: p.type for p in rule.params if isinstance(p.type, ScalarType)}
        self._local = set(self._scalar_types) | {name for name, _ in kinds}
        for _, kind in (*kinds, *side.links):
            self._local |= {n for dim in (*kind.dims, *(kind.strides or ())) for n in names(dim)}
            self._local |= {d.name for d in kind.dims if isinstance(d, Spread)}
            if self._is_variable(kind.dtype):
                self._local.add(kind.dtype)
        self._local -= {*program.lets, *program.dtype_sets, *DTYPES}
        self.types = {name: self._type(kind) for name, kind in kinds}
        self.links = [(name, self._type(kind)) for name, kind in side.links]
        self.tensor_names = tuple(
            self.marked(p.name) for p in rule.params if isinstance(p.type, TensorType)
        )
        self.parts: dict[str, list[str]] = {}
        for kind in self.every_type():
            if kind.dims and isinstance(kind.dims[0], Spread):
                self.parts.setdefault(kind.dims[0].name, [f"{kind.dims[0].name}#0"])

    def every_type(self) -> Iterator[TensorType]:
        yield from self.types.values()
        yield from (kind for _, kind in self.links)

    def _is_variable(self, dtype: str) -> bool:
        known = dtype in DTYPES or dtype in (FP8, ANY) or dtype in self.program.dtype_sets
        return not known and dtype not in self._scalar_types

    def marked(self, name: str) -> str:
        return f"{name}{self.mark}" if name in self._local else name

    def expr(self, expr: Expr) -> Expr:
        def change(part: Expr) -> Expr | None:
            if isinstance(part, Name):
                return Name(self.marked(part.id))
            return Spread(self.marked(part.name)) if isinstance(part, Spread) else None

        return rewrite(expr, change)

    def _type(self, kind: TensorType) -> TensorType:
        strides = None if kind.strides is None else tuple(map(self.expr, kind.strides))
        dims = tuple(map(self.expr, kind.dims))
        return TensorType(self.marked(kind.dtype), dims, strides, kind.optional)

    # --- what has to hold ------------------------------------------------------------------------

    def conditions(self) -> Iterator[Expr]:
        rule = self.side.rule
        yield from map(self.expr, stated_conditions(rule, self.program))
        yield from (self.expr(part) for e in self.side.where for part in conjuncts(e))
        known = {*self._local, *self.program.lets, *self.program.dtype_sets, *_GLOBAL}
        for condition in kernel_of(rule, self.program).conditions:
            if names(condition) <= known:
                yield self.expr(condition)

    def rank(self, kind: TensorType) -> int:
        return len(self.dims(kind))

    def widen(self, kind: TensorType, by: int) -> None:
        spread = kind.dims[0]
        assert isinstance(spread, Spread)
        parts = self.parts[spread.name]
        parts.extend([f"{spread.name}#{len(parts) + n}" for n in range(by)])

    def narrow(self, kind: TensorType, by: int) -> None:
        spread = kind.dims[0]
        assert isinstance(spread, Spread)
        del self.parts[spread.name][max(0, len(self.parts[spread.name]) - by) :]

    def dims(self, kind: TensorType) -> tuple[Expr, ...]:
        """Sizes with a name for each leading one."""
        found: list[Expr] = []
        for dim in kind.dims:
            if isinstance(dim, Spread):
                found.extend(Name(part) for part in self.parts[dim.name])
            else:
                found.append(dim)
        return tuple(found)

    def dtype(self, kind: TensorType) -> Expr | None:
        known = kind.dtype in DTYPES or kind.dtype == FP8
        return Name(kind.dtype) if known or kind.dtype in self.dtype_variables() else None

    def scalar(self, operand: Operand) -> Expr | None:
        found = as_expr(operand)
        return None if found is None else self.expr(found)

    # --- what can be chosen ----------------------------------------------------------------------

    def dtype_variables(self) -> list[str]:
        known = {*DTYPES, FP8, ANY, *self.program.dtype_sets, *map(self.marked, self._scalar_types)}
        return sorted({kind.dtype for kind in self.every_type()} - known)

    def scalars(self, literals: Sequence[int]) -> dict[str, list[Value]]:
        found: dict[str, list[Value]] = {}
        for name, kind in self._scalar_types.items():
            found[self.marked(name)] = _scalar_options(kind, literals)
        return found

    def sizes(self) -> Iterator[tuple[str, bool]]:
        """Names of sizes that can be chosen, with whether they are leading ones."""
        for parts in self.parts.values():
            yield from ((part, True) for part in parts)
        scalars = set(map(self.marked, self._scalar_types))
        for kind in self.every_type():
            for position, dim in enumerate(kind.dims):
                leading = position == 0 and len(kind.dims) > 1
                for name in sorted(() if isinstance(dim, Spread) else names(dim)):
                    if name not in scalars and name not in self.parts and name in self._marked():
                        yield name, leading

    def _marked(self) -> set[str]:
        return set(map(self.marked, self._local))


def _scalar_options(kind: ScalarType, literals: Sequence[int]) -> list[Value]:
    if kind.is_list:
        return [()]
    if kind.kind == "dtype":
        return [DType(dtype) for dtype in OPEN_DTYPES]
    if kind.kind == "int":
        every = list(dict.fromkeys((*TRAILING, *literals)))
        return [Dim.const(n) for n in every[:MOST_CANDIDATES]]
    return list(SCALARS[kind.kind])
