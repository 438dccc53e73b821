"""Conditions and sizes: every name is known, every operand is of the right kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fusiondsl.analysis.exprs import show, walk
from fusiondsl.analysis.kinds import (
    NUMBERS,
    Kind,
    Typed,
    comparable,
    kind_of_scalar,
    kind_of_value,
    scalar_kind,
)
from fusiondsl.analysis.scope import Scope, is_fact
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims.expr import Binary, Call, Expr, Literal, Name, Sequence, Spread, Unary
from fusiondsl.dims.functions import BUILTINS
from fusiondsl.ir.program import READ_AS
from fusiondsl.syntax import ast
from fusiondsl.target import ENV_FACTS

UNKNOWN = Typed(Kind.UNKNOWN)
INT = Typed(Kind.INT)
BOOL = Typed(Kind.BOOL)

_FACT_KINDS = {"int": Kind.INT, "str": Kind.STR, "bool": Kind.BOOL}
MOST_PARTS = 1_000
"""A `let` with more parts is refused: lets of lets grow without bound."""
MOST_BITS = 63

_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%", "**"})
_INT_FUNCTIONS = {"ceil_div": 2, "round_up": 2, "itemsize": 1, "is_pow2": 1}
_DIVIDING = ("ceil_div", "round_up")
FUNCTIONS = tuple(BUILTINS)


class ExprChecker:
    """Checks one expression and returns it with lets put in, and its kind.

    `free` decides about a name that the scope does not know: it may bind it (a size in a parameter
    type) by returning True.
    """

    def __init__(
        self, scope: Scope, free: Callable[[str, Span | None], bool] | None = None
    ) -> None:
        self.scope = scope
        self._free = free

    # --- entry points --------------------------------------------------------------------------

    def condition(self, expr: Expr) -> Expr:
        checked, typed = self.check(expr)
        self._expect(typed, Kind.BOOL, expr, "a condition is needed")
        return checked

    def size(self, expr: Expr) -> Expr | None:
        """A size of a dimension; None when it was reported."""
        checked, typed = self.check(expr)
        if not self._expect(typed, Kind.INT, expr, "a size is needed"):
            return None
        constant = self.scope.sizes.constant(checked)
        if constant is not None and constant < 0:
            self._error("FD213", f"the size {constant} is negative", expr)
            return None
        return None if typed.kind is Kind.UNKNOWN else checked

    def check(self, expr: Expr) -> tuple[Expr, Typed]:
        match expr:
            case Literal():
                return expr, Typed(kind_of_value(expr.value))
            case Name():
                return self._name(expr)
            case Spread():
                return self._spread(expr)
            case Unary():
                return self._unary(expr)
            case Binary():
                return self._binary(expr)
            case Call():
                return self._call(expr)
            case Sequence():
                return self._sequence(expr)
            case _:
                self._error("FD221", f"`{show(expr)}` cannot stand in a condition or size", expr)
                return expr, UNKNOWN

    # --- names ---------------------------------------------------------------------------------

    def _name(self, expr: Name) -> tuple[Expr, Typed]:
        scope, name = self.scope, expr.id
        scope.used.add(name)
        if scope.is_size(name):
            return expr, INT
        if name in scope.scalars:
            return expr, Typed(kind_of_scalar(scope.scalars[name]))
        if name in scope.tensors:
            return expr, Typed(Kind.TENSOR)
        let = scope.let(name)
        if let is not None:
            return self.check(replace(let, span=expr.span))
        if scope.is_dtype(name):
            return expr, Typed(Kind.DTYPE)
        if is_fact(name):
            return expr, Typed(_FACT_KINDS[ENV_FACTS[name]])
        members = scope.dtype_set(name)
        if members is not None:
            items = tuple(Name(m, span=expr.span) for m in members)
            return Sequence(items, span=expr.span), Typed(Kind.SET, Kind.DTYPE)
        if self._free is not None and self._free(name, expr.span):
            return expr, INT
        if name not in scope.spans:
            scope.unknown_name(name, expr.span)
        return expr, UNKNOWN

    def _spread(self, expr: Spread) -> tuple[Expr, Typed]:
        if expr.name in self.scope.spreads:
            self.scope.used.add(expr.name)
        else:
            self._error("FD212", f"`{expr.name}..` is not bound by a parameter", expr)
        return expr, INT

    # --- operators -----------------------------------------------------------------------------

    def _unary(self, expr: Unary) -> tuple[Expr, Typed]:
        operand, typed = self.check(expr.operand)
        checked = replace(expr, operand=operand)
        if expr.op == "not":
            self._expect(typed, Kind.BOOL, expr.operand, "`not` needs a condition")
            return checked, BOOL
        if expr.op == "-":
            if typed.kind not in NUMBERS:
                self._wrong_kind(typed, expr.operand, "`-` needs a number")
                return checked, UNKNOWN
            return _folded(checked), typed
        self._error("FD221", f"`{expr.op}` may stand only in `means`", expr)
        return checked, UNKNOWN

    def _binary(self, expr: Binary) -> tuple[Expr, Typed]:
        left, a = self.check(expr.left)
        right, b = self.check(expr.right)
        checked = replace(expr, left=left, right=right)
        if expr.op in ("and", "or"):
            self._expect(a, Kind.BOOL, expr.left, f"`{expr.op}` needs conditions")
            self._expect(b, Kind.BOOL, expr.right, f"`{expr.op}` needs conditions")
            return checked, BOOL
        if expr.op in ("in", "not in"):
            self._membership(expr, a, b)
            return checked, BOOL
        if expr.op in _COMPARISONS:
            self._comparison(expr, a, b)
            return checked, BOOL
        return checked, self._arithmetic(checked, expr, a, b)

    def _membership(self, expr: Binary, a: Typed, b: Typed) -> None:
        if b.kind is Kind.UNKNOWN:
            return
        if b.kind is not Kind.SET:
            hint = f"a set of one is written `({show(expr.right)},)`"
            self._error(
                "FD220",
                f"{_name_of(expr.right)} is {b.kind.value}, but `{expr.op}` needs a set",
                expr.right,
                help=hint if comparable(a.kind, b.kind) else None,
            )
        elif b.member is not None and not comparable(a.kind, b.member):
            self._error(
                "FD220",
                f"{_name_of(expr.left)} is {a.kind.value}, the set holds {_plural(b.member)}",
                expr,
            )

    def _comparison(self, expr: Binary, a: Typed, b: Typed) -> None:
        if not comparable(a.kind, b.kind):
            self._error(
                "FD220",
                f"cannot compare {a.kind.value} with {b.kind.value}",
                expr,
                notes=[
                    f"{_name_of(expr.left)} is {a.kind.value}",
                    f"{_name_of(expr.right)} is {b.kind.value}",
                ],
            )
            return
        if expr.op in ("==", "!="):
            tensor = Kind.TENSOR in (a.kind, b.kind) and Kind.NONE not in (a.kind, b.kind)
            if tensor:
                self._error("FD220", "tensors have no value to compare in a condition", expr)
            return
        for typed, side in ((a, expr.left), (b, expr.right)):
            if typed.kind not in NUMBERS:
                self._wrong_kind(typed, side, f"`{expr.op}` needs numbers")

    def _arithmetic(self, checked: Binary, expr: Binary, a: Typed, b: Typed) -> Typed:
        if Kind.UNKNOWN in (a.kind, b.kind):
            return UNKNOWN
        for typed, side in ((a, expr.left), (b, expr.right)):
            if typed.kind not in NUMBERS:
                self._wrong_kind(typed, side, f"`{expr.op}` needs numbers")
                return UNKNOWN
        if expr.op in ("/", "//", "%") and self._is_zero(checked.right):
            self._error("FD214", f"`{show(expr)}` divides by zero", expr)
            return UNKNOWN
        return INT if a.kind is b.kind is Kind.INT else Typed(Kind.FLOAT)

    def _is_zero(self, expr: Expr) -> bool:
        if isinstance(expr, Literal):
            return expr.value == 0
        return self.scope.sizes.constant(expr) == 0

    # --- calls and sets ------------------------------------------------------------------------

    def _call(self, expr: Call) -> tuple[Expr, Typed]:
        if expr.func == READ_AS:
            self._error("FD235", f"`{READ_AS}` is a condition of its own, of a rule", expr)
            return expr, UNKNOWN
        if expr.kwargs:
            self._error("FD205", f"`{expr.func}` takes no keyword arguments", expr)
            return expr, UNKNOWN
        pairs = [self.check(arg) for arg in expr.args]
        checked = replace(expr, args=tuple(e for e, _ in pairs))
        kinds = [typed for _, typed in pairs]
        if expr.func in FUNCTIONS:
            return checked, self._function(expr, checked, kinds)
        predicates = self.scope.visible.definitions.predicates
        predicate = self.scope.visible.find(predicates, expr.func)
        if predicate is not None:
            self._predicate(predicate.item, expr, kinds)
            return checked, BOOL
        return checked, self._table(expr, kinds)

    def _predicate(self, predicate: ast.Predicate, expr: Call, kinds: list[Typed]) -> None:
        if len(predicate.params) != len(kinds):
            wanted = len(predicate.params)
            self._error(
                "FD204",
                f"the predicate `{expr.func}` takes {wanted} argument(s), not {len(kinds)}",
                expr,
            )
            return
        for param, typed, arg in zip(predicate.params, kinds, expr.args, strict=True):
            if not isinstance(param.type, ast.ScalarType):
                continue  # reported where it is declared
            wanted_kind = scalar_kind(param.type.kind)
            if not comparable(typed.kind, wanted_kind) or typed.kind is Kind.NONE:
                why = f"`{param.name.name}` of `{expr.func}` is {wanted_kind.value}"
                self._wrong_kind(typed, arg, why)

    def _function(self, expr: Call, checked: Call, kinds: list[Typed]) -> Typed:
        count = _INT_FUNCTIONS.get(expr.func)
        if (count is not None and len(kinds) != count) or not kinds:
            self._error("FD204", f"`{expr.func}` takes {count or 'at least 1'} argument(s)", expr)
            return UNKNOWN
        if expr.func == "itemsize":
            self._expect(kinds[0], Kind.DTYPE, expr.args[0], "`itemsize` needs a dtype")
            return INT
        for typed, arg in zip(kinds, expr.args, strict=True):
            if typed.kind not in NUMBERS:
                self._wrong_kind(typed, arg, f"`{expr.func}` needs numbers")
                return UNKNOWN
        if expr.func in _DIVIDING and self._is_zero(checked.args[1]):
            self._error("FD214", f"`{show(expr)}` divides by zero", expr)
            return UNKNOWN
        if expr.func == "is_pow2":
            return BOOL
        return Typed(Kind.FLOAT) if Typed(Kind.FLOAT) in kinds else INT

    def _table(self, expr: Call, kinds: list[Typed]) -> Typed:
        tables = self.scope.visible.definitions.tables
        found = self.scope.visible.find(tables, expr.func)
        if found is None:
            self._unknown_function(expr)
            return UNKNOWN
        table = found.item
        if len(table.params) != len(kinds):
            self._error(
                "FD204",
                f"the table `{expr.func}` takes {len(table.params)} argument(s), not {len(kinds)}",
                expr,
            )
            return UNKNOWN
        return Typed(table_kind(self.scope, table.rows[0].value)) if table.rows else UNKNOWN

    def _unknown_function(self, expr: Call) -> None:
        visible, span = self.scope.visible, expr.func_span or expr.span
        tables, predicates = visible.definitions.tables, visible.definitions.predicates
        known = [*FUNCTIONS, *tables, *predicates]
        if expr.func in predicates:
            visible.unknown("FD114", "function", expr.func, span, known, predicates)
        else:
            visible.unknown("FD114", "function", expr.func, span, known, tables)

    def _sequence(self, expr: Sequence) -> tuple[Expr, Typed]:
        pairs = [self.check(item) for item in expr.items]
        checked = replace(expr, items=tuple(e for e, _ in pairs))
        kinds = [typed.kind for _, typed in pairs]
        first = next((k for k in kinds if k is not Kind.UNKNOWN), None)
        for kind, item in zip(kinds, expr.items, strict=True):
            if first is not None and not comparable(kind, first):
                self._error(
                    "FD220",
                    f"{_name_of(item)} is {kind.value}, the other members are {_plural(first)}",
                    item,
                )
                break
        return checked, Typed(Kind.SET, first)

    # --- reporting -----------------------------------------------------------------------------

    def _expect(self, typed: Typed, kind: Kind, expr: Expr, why: str) -> bool:
        if typed.kind in (kind, Kind.UNKNOWN):
            return True
        self._wrong_kind(typed, expr, why)
        return False

    def _wrong_kind(self, typed: Typed, expr: Expr, why: str) -> None:
        self._error("FD220", f"{_name_of(expr)} is {typed.kind.value}, but {why}", expr)

    def _error(
        self,
        code: str,
        message: str,
        expr: Expr,
        notes: list[str] | None = None,
        help: str | None = None,
    ) -> None:
        self.scope.diagnostics.error(code, message, expr.span, notes=notes or (), help=help)


def let_value(checker: ExprChecker, written: Expr, span: Span) -> Expr | None:
    """The value of a `let` with other lets put in; None, and a diagnostic, if it has none."""
    value, typed = checker.check(written)
    if typed.kind is Kind.UNKNOWN:
        return None
    if sum(1 for _ in walk(value)) > MOST_PARTS:
        checker.scope.diagnostics.error("FD228", "the `let` is too large", span)
        return None
    number = checker.scope.sizes.constant(value)
    if number is None:
        return value
    if number.bit_length() > MOST_BITS:
        checker.scope.diagnostics.error("FD228", "the number does not fit into 64 bits", span)
        return None
    return Literal(number, span=value.span)


def table_kind(scope: Scope, value: Expr) -> Kind:
    """The kind of a table's values; the rows are checked where the table stands."""
    if isinstance(value, Literal):
        return kind_of_value(value.value)
    return Kind.DTYPE if isinstance(value, Name) and scope.is_dtype(value.id) else Kind.INT


def _folded(expr: Unary) -> Expr:
    """`-1` is a literal."""
    value = expr.operand.value if isinstance(expr.operand, Literal) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Literal(-value, span=expr.span)
    return expr


def _name_of(expr: Expr) -> str:
    return f"`{show(expr)}`"


def _plural(kind: Kind) -> str:
    text = kind.value.partition(" ")[2] or kind.value
    return f"{text}s"
