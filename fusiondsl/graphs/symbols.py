"""Symbolic sizes from text: one `ShapeEnv` and fake mode a graph, one symbol a name, no guards."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy import functions
from torch.utils._sympy.functions import CeilDiv, CleanDiv, FloorDiv, Max, Min, Mod, PythonMod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from fusiondsl.graphs.expressions import BadText
from fusiondsl.graphs.text import Call, Constant, Dotted, Expr, Infix, Prefix

Size = int | torch.SymInt
Scalar = int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool

_KIND = re.compile(r"(?P<float>zu?f)\d+|u\d+")
_HINT = 8192
_HINT_STEP = 64
_MAX_POWER = 64

_INFIX: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": FloorDiv,
    "%": PythonMod,
    "==": sympy.Eq,
    "!=": sympy.Ne,
    "<": sympy.Lt,
    "<=": sympy.Le,
    ">": sympy.Gt,
    ">=": sympy.Ge,
    "&": sympy.And,
    "|": sympy.Or,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Max": Max,
    "Min": Min,
    "Mod": Mod,
    "PythonMod": PythonMod,
    "FloorDiv": FloorDiv,
    "CleanDiv": CleanDiv,
    "CeilDiv": CeilDiv,
    "Eq": sympy.Eq,
    "Ne": sympy.Ne,
    "Lt": sympy.Lt,
    "Le": sympy.Le,
    "Gt": sympy.Gt,
    "Ge": sympy.Ge,
    "And": sympy.And,
    "Or": sympy.Or,
    "Not": sympy.Not,
    "Abs": sympy.Abs,
    "floor": sympy.floor,
    "ceiling": sympy.ceiling,
}
_OF_TORCH = (
    *("CeilToInt", "FloatPow", "FloatTrueDiv", "FloorToInt", "IntTrueDiv", "LShift", "Identity"),
    *("ModularIndexing", "PowByNatural", "RShift", "RoundToInt", "ToFloat", "TruncToFloat"),
    *("TruncToInt", "OpaqueUnaryFn_sqrt", "OpaqueUnaryFn_log2", "OpaqueUnaryFn_exp", "Where"),
)
_FLOATS = (functions.ToFloat, functions.IntTrueDiv, functions.FloatTrueDiv, functions.FloatPow)
_FUNCTIONS.update({n: getattr(functions, n) for n in _OF_TORCH if hasattr(functions, n)})


@dataclass(frozen=True)
class SymbolFacts:
    """The range of a symbol and the size it had when its graph was traced, where known."""

    lower: int | None = None
    upper: int | None = None
    hint: int | None = None


class Symbols:
    """The symbols of one graph. Equal names are one symbol; different names never alias."""

    def __init__(self) -> None:
        self.shape_env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.shape_env, allow_non_fake_inputs=True)
        self._by_name: dict[str, sympy.Symbol] = {}
        self._hints: dict[sympy.Symbol, int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def symbol(self, name: str, facts: SymbolFacts | None = None) -> sympy.Symbol:
        """The symbol called `name`; created at the first use, with what is known about it."""
        if name not in self._by_name:
            kind = _KIND.fullmatch(name)
            create = self._backed
            if kind is not None:
                create = self._float if kind["float"] else self._unbacked
            self._by_name[name] = create(name, facts or SymbolFacts())
        return self._by_name[name]

    def size(self, expr: Expr) -> Size:
        """An integer expression as `int` or `SymInt`."""
        value = self._checked(expr)
        if value.is_Integer:
            return int(value)
        finite = isinstance(value, sympy.Expr) and value.is_finite is not False
        if not finite or value.is_integer is False:
            raise BadText("FD608", "not an integer expression", expr.span)
        return self.symint(value)

    def symint(self, value: sympy.Expr) -> Size:
        return self.shape_env.create_symintnode(value, hint=self._hint(value))

    def scalar(self, expr: Expr) -> Scalar:
        """What stands in `Sym(...)`: an integer, a comparison, or an unbacked float."""
        value = self._checked(expr)
        if value in (sympy.true, sympy.false):
            return bool(value)
        if not isinstance(value, sympy.Expr):
            return self.shape_env.create_symboolnode(value)
        if value.is_Float:
            return float(value)
        if value is sympy.nan or value.is_infinite:
            return float(value)
        if _is_float(value):
            return self.shape_env.create_symfloatnode(value, hint=None)
        return self.size(expr)

    # --- symbols -------------------------------------------------------------------------------

    def _backed(self, name: str, facts: SymbolFacts) -> sympy.Symbol:
        hint = facts.hint
        if hint is None:
            hint = min(_HINT + _HINT_STEP * len(self._by_name), facts.upper or _HINT)
        source = ConstantSource(_source_name(name))
        with _numbered(self.shape_env, name):
            symbol = self.shape_env.create_symbol(
                hint,
                source,
                DimDynamic.DYNAMIC,
                None,
                positive=True,
                do_not_specialize_zero_one=True,
            )
        assert isinstance(symbol, sympy.Symbol)
        # Sizes 0 and 1 are always specialised, so a size with a symbol is at least 2.
        self._restrict(symbol, 2 if facts.lower is None else facts.lower, facts.upper)
        self._hints[symbol] = hint
        return symbol

    def _float(self, name: str, facts: SymbolFacts) -> sympy.Symbol:
        with self.shape_env.ignore_fresh_unbacked_symbols():
            return self.shape_env.create_unbacked_symfloat().node.expr

    def _unbacked(self, name: str, facts: SymbolFacts) -> sympy.Symbol:
        if isinstance(self.shape_env.unbacked_symint_counter, int):
            self.shape_env.unbacked_symint_counter = int(name[1:])
        with self.shape_env.ignore_fresh_unbacked_symbols():
            symbol = self.shape_env.create_unbacked_symint().node.expr
        self._restrict(symbol, 0 if facts.lower is None else facts.lower, facts.upper)
        return symbol

    def _restrict(self, symbol: sympy.Symbol, lower: int, upper: int | None) -> None:
        high = int_oo if upper is None else sympy.Integer(upper)
        self.shape_env.var_to_range[symbol] = ValueRanges(sympy.Integer(lower), high)

    def _hint(self, value: sympy.Expr) -> int | None:
        if not value.free_symbols <= self._hints.keys():
            return None
        return int(value.xreplace({s: sympy.Integer(self._hints[s]) for s in value.free_symbols}))

    # --- expressions ---------------------------------------------------------------------------

    def _checked(self, expr: Expr) -> Any:
        try:
            return self._value(expr)
        except (ZeroDivisionError, TypeError, ValueError, AssertionError):
            raise BadText("FD608", "not an expression over sizes", expr.span) from None

    def _value(self, expr: Expr) -> Any:
        match expr:
            case Constant(value=bool() as value):
                return sympy.true if value else sympy.false
            case Constant(value=int() | float() as value):
                return sympy.sympify(value)
            case Dotted(parts=(name,)):
                return self.symbol(name)
            case Prefix(op="-", operand=operand):
                return -self._value(operand)
            case Prefix(op="~", operand=operand):
                return sympy.Not(self._value(operand))
            case Infix(op="**", left=left, right=Constant(value=int() as power)):
                if 0 <= power <= _MAX_POWER:
                    return self._value(left) ** power
            case Infix(op=op, left=left, right=right) if op in _INFIX:
                return _INFIX[op](self._value(left), self._value(right))
            case Call(func=Dotted(parts=(name,)), args=args) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*(self._value(arg) for arg in args))
        raise BadText("FD608", "not an expression over sizes", expr.span)


@contextmanager
def _numbered(shape_env: ShapeEnv, name: str) -> Iterator[None]:
    """Numbers from 100 on come from collisions, so the smaller ones are taken for the moment."""
    taken: set[int] = getattr(shape_env, "unique_ids", set())
    match = re.fullmatch(r"s(\d{3,4})", name)
    blocked = set(range(int(match[1]))) - taken if match else set()
    taken |= blocked
    try:
        yield
    finally:
        taken -= blocked


def _is_float(value: sympy.Expr) -> bool:
    if value.is_integer is not None:
        return not value.is_integer
    if any(symbol.is_integer is not True for symbol in value.free_symbols):
        return True
    return bool(value.has(*_FLOATS)) or sympy.fraction(value)[1] != 1


def _source_name(name: str) -> str:
    """A source name for which `ShapeEnv` picks the number of `name`, so that it prints as written.

    The number is a hash of the source's name; where torch picks otherwise, only the print differs.
    """
    match = re.fullmatch(r"s(\d{1,2})", name)
    if match is None:
        return name
    for attempt in range(2000):
        candidate = f"{name}_{attempt}"
        if int(hashlib.sha256(candidate.encode()).hexdigest(), 16) % 100 == int(match[1]):
            return candidate
    return name
