"""Sizes as the checker compares them: expressions to `Dim`, equality under stated facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import lcm
from types import MappingProxyType

from fusiondsl.dims.dim import Atom, Dim, DimTooComplex
from fusiondsl.dims.expr import Binary, Call, Expr, Literal, Name, Spread, Unary
from fusiondsl.dims.render import render


class Sizes:
    """The size facts of one body.

    `a / b` says that the quotient is whole, so a fact `a == b * (a / b)` comes with it; `where`
    adds equalities. What neither proves equal nor different is unknown.
    """

    def __init__(self) -> None:
        self._cache: dict[Expr, Dim | None] = {}
        self._exact: dict[tuple[Dim, Dim], None] = {}
        self._equal: dict[str, Dim] = {}
        self._zero: list[Dim] = []
        """Differences that are nothing, where no side of the equality is a symbol to replace."""
        self._whole: dict[str, Dim] | None = None
        self._opaque: dict[str, Expr] = {}
        self.learned: list[tuple[Expr, Expr]] = []
        """Equalities that a pattern takes for granted: nothing written says them."""

    # --- facts ---------------------------------------------------------------------------------

    def assume_equal(self, left: Expr, right: Expr) -> None:
        a, b = self.of(left), self.of(right)
        if a is None or b is None:
            return
        for symbol, value in ((a.as_symbol(), b), (b.as_symbol(), a)):
            if symbol is not None and symbol not in self._equal and not self._loops(symbol, value):
                self._equal[symbol] = value
                return
        self._zero.append(a - b)

    def learn_equal(self, left: Expr, right: Expr) -> None:
        """Takes an equality for granted that somebody has to check later."""
        self.learned.append((left, right))
        self.assume_equal(left, right)

    def assume_multiple(self, left: Expr, right: Expr) -> None:
        """`left % right == 0`."""
        a, b = self.of(left), self.of(right)
        if a is not None and b is not None and b != 0:
            self._note_exact(a, b)

    def _loops(self, symbol: str, value: Dim) -> bool:
        return symbol in self._settled(value).symbols()

    # --- questions -----------------------------------------------------------------------------

    def of(self, expr: Expr) -> Dim | None:
        """The normal form, None for what is no size or divides by zero."""
        if isinstance(expr, Literal):
            return self._convert(expr)  # 1, 1.0 and true are equal keys
        if expr not in self._cache:
            self._cache[expr] = self._attempt(expr)
        return self._cache[expr]

    def constant(self, expr: Expr) -> int | None:
        dim = self.of(expr)
        return None if dim is None else self._settled(dim).as_int()

    def equal(self, left: Expr, right: Expr) -> bool | None:
        if left == right:
            return True
        a, b = self.of(left), self.of(right)
        if a is None or b is None:
            return None
        return self._same(a, b)

    def _same(self, a: Dim, b: Dim) -> bool | None:
        try:
            difference = self._settled(a) - self._settled(b)
            if difference.as_int() is None:
                whole = self._whole_parts()
                difference = difference.substitute(whole)
            if difference.as_int() is None and self._is_zero(difference):
                return True
        except (ZeroDivisionError, DimTooComplex):
            return None
        constant = difference.as_int()
        return None if constant is None else constant == 0

    def quotient(self, left: Expr, right: Expr) -> Expr | None:
        """`left / right` where that is known to be whole."""
        a, b = self.of(left), self.of(right)
        if a is None or b is None or b == 0:
            return None
        exact = a.exact_div(b)
        return None if exact is None else to_expr(exact, self._opaque)

    def simplify(self, expr: Expr) -> Expr:
        """A polynomial in its normal form; anything else as it is written."""
        if isinstance(expr, Name | Literal | Spread):
            return expr
        dim = self.of(expr)
        if dim is None or any(atom.kind != "symbol" for atom in dim.atoms()):
            return expr
        return to_expr(dim, self._opaque)

    def solve(self, pattern: Expr, name: str, actual: Expr) -> Expr | None:
        """What `name` must be for `pattern` to be `actual`, where `pattern` is linear in it."""
        a, p = self.of(actual), self.of(pattern)
        if a is None or p is None or name not in p.symbols():
            return None
        try:
            rest = p.substitute({name: 0})
            factor = p.substitute({name: 1}) - rest
        except ZeroDivisionError:  # it is a divisor
            return self._solve_division(pattern, name, actual)
        if name in factor.symbols() or p != Dim.symbol(name) * factor + rest or factor == 0:
            return self._solve_division(pattern, name, actual)
        exact = (a - rest).exact_div(factor)
        if exact is not None:
            return to_expr(exact, self._opaque)
        return Binary("/", to_expr(a - rest, self._opaque), to_expr(factor, self._opaque))

    def _solve_division(self, pattern: Expr, name: str, actual: Expr) -> Expr | None:
        """`H / 2` against `A`: `H` is `2 * A`, because `/` is exact."""
        if not (isinstance(pattern, Binary) and pattern.op == "/"):
            return None
        scaled = self.simplify(Binary("*", pattern.right, actual))
        return self.solve(pattern.left, name, scaled)

    # --- inside --------------------------------------------------------------------------------

    def _settled(self, dim: Dim) -> Dim:
        for _ in range(len(self._equal) + 1):
            if not (dim.symbols() & self._equal.keys()):
                return dim
            try:
                dim = dim.substitute(self._equal)
            except ZeroDivisionError:  # a divisor is stated to be nothing
                return dim
        return dim

    def _is_zero(self, difference: Dim) -> bool:
        """Whether a multiple of it is stated to be nothing."""
        whole = self._whole_parts()
        multiples = (self._settled(z).substitute(whole).exact_div(difference) for z in self._zero)
        return any(m is not None and m.as_int() not in (None, 0) for m in multiples)

    def _whole_parts(self) -> dict[str, Dim]:
        """Each symbol that is divided exactly, as divisor times a new symbol."""
        if self._whole is not None:
            return self._whole
        constants: dict[str, int] = {}
        whole: dict[str, Dim] = {}
        for numerator, divisor in self._exact:
            symbol, value = numerator.as_symbol(), divisor.as_int()
            if symbol is None:
                continue
            if value is not None:
                constants[symbol] = lcm(constants.get(symbol, 1), value)
            elif symbol not in whole and symbol not in divisor.symbols():
                whole[symbol] = divisor * Dim.symbol(f"{symbol} / ({divisor})")
        for symbol, value in constants.items():
            if symbol not in whole:
                whole[symbol] = Dim.symbol(f"{symbol} / {value}") * value
        self._whole = whole
        return whole

    def _note_exact(self, numerator: Dim, divisor: Dim) -> None:
        if (numerator, divisor) not in self._exact:
            self._exact[numerator, divisor] = None
            self._whole = None

    def _attempt(self, expr: Expr) -> Dim | None:
        try:
            return self._convert(expr)
        except (ZeroDivisionError, DimTooComplex):
            return None

    def _convert(self, expr: Expr) -> Dim | None:
        match expr:
            case Literal(value=int() as value) if not isinstance(value, bool):
                return Dim.const(value)
            case Name():
                return Dim.symbol(expr.id)
            case Spread():
                return Dim.symbol(expr.name)
            case Unary(op="-"):
                inner = self.of(expr.operand)
                return None if inner is None else -inner
            case Binary():
                return self._convert_binary(expr)
            case Call():
                return self._convert_call(expr)
            case _:
                return None

    def _convert_binary(self, expr: Binary) -> Dim | None:
        a, b = self.of(expr.left), self.of(expr.right)
        if a is None or b is None:
            return None
        if expr.op == "/":
            exact = a.exact_div(b)
            if exact is not None:
                return exact
            quotient = a // b
            self._note_exact(a, b)
            return quotient
        compute = _ARITHMETIC.get(expr.op)
        return None if compute is None else compute(a, b)

    def _convert_call(self, expr: Call) -> Dim | None:
        args = [self.of(arg) for arg in expr.args]
        known = [arg for arg in args if arg is not None]
        complete = len(known) == len(args) and bool(known) and not expr.kwargs
        if complete and expr.func in _TWO_ARGUMENTS:
            return _TWO_ARGUMENTS[expr.func](*known) if len(known) == 2 else None
        if complete and expr.func in _FUNCTIONS:
            return _FUNCTIONS[expr.func](known)
        # an opaque number: a table or a property of a tensor, the same for the same arguments
        text = render(expr)
        self._opaque[text] = expr
        return Dim.symbol(text)


_ARITHMETIC: dict[str, Callable[[Dim, Dim], Dim]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}

_TWO_ARGUMENTS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "ceil_div": lambda a, b: a.ceil_div(b),
    "round_up": lambda a, b: a.round_up(b),
}

_FUNCTIONS: dict[str, Callable[[list[Dim]], Dim]] = {
    "min": lambda args: Dim.min(*args),
    "max": lambda args: Dim.max(*args),
    "product": Dim.product,
}


def to_expr(dim: Dim, opaque: Mapping[str, Expr] = MappingProxyType({})) -> Expr:
    """A normal form back as an expression; `opaque` says what stands behind invented symbols."""
    total: Expr | None = None
    for monomial, coefficient in dim.terms:
        term = _term([_atom(atom, opaque) for atom in monomial], abs(coefficient))
        if total is None:
            total = Unary("-", term) if coefficient < 0 else term
        else:
            total = Binary("-" if coefficient < 0 else "+", total, term)
    return Literal(0) if total is None else total


def _atom(atom: Atom, opaque: Mapping[str, Expr]) -> Expr:
    if atom.kind == "symbol":
        return opaque.get(atom.key, Name(atom.key))
    args = tuple(to_expr(arg, opaque) for arg in atom.args)
    if atom.kind in ("floor_div", "mod"):
        return Binary("//" if atom.kind == "floor_div" else "%", args[0], args[1])
    return Call(atom.kind, args)


def _term(factors: list[Expr], coefficient: int) -> Expr:
    if coefficient != 1 or not factors:
        factors = [Literal(coefficient), *factors]
    return product(factors)


def product(exprs: list[Expr]) -> Expr:
    """The product of sizes; the number of elements."""
    if not exprs:
        return Literal(1)
    total = exprs[0]
    for expr in exprs[1:]:
        total = Binary("*", total, expr)
    return total
