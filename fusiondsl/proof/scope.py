"""Names of one body: tensors, scalars, sizes and dtypes, bound from what is passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fusiondsl.analysis.exprs import conjuncts, walk
from fusiondsl.decl.dtypes import ANY, DTYPES, FP8
from fusiondsl.dims.expr import Binary, Call, DType, Expr, Literal, Name, Sequence, Spread, Unary
from fusiondsl.dims.names import names as names_in
from fusiondsl.ir.program import Condition, Const, ListOf, OpDecl, Param, ScalarType, TensorType
from fusiondsl.proof import attrs
from fusiondsl.proof.attrs import Attr
from fusiondsl.proof.prims import Argument
from fusiondsl.proof.size import ONE, Size, opaque, product, solve
from fusiondsl.proof.terms import Shape
from fusiondsl.proof.values import Context, Unprovable, Value

_WHOLE = ScalarType("int")


@dataclass
class Scope:
    context: Context
    open: bool = False
    """Names that nothing binds are unknowns of their own; in the body of a call there are none."""
    values: dict[str, Argument] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    spreads: dict[str, Shape] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Scope:
        values = dict(self.values)
        return Scope(self.context, self.open, values, self.sizes, self.spreads, self.dtypes)

    # --- a rule's or an op's own inputs --------------------------------------------------------

    @staticmethod
    def of_inputs(params: tuple[Param, ...], context: Context, facts: Facts) -> Scope:
        """Parameters as unknowns, where the facts do not give their values."""
        scope = Scope(context, open=True)
        for name, value in facts.pinned.items():
            attr = scope.attr(value)
            if attr[0] == "int":
                scope.sizes[name] = attr[1]
        scope._scalars(params, facts.pinned)
        facts.learn_sizes(scope)
        if context.known:
            scope._scalars(params, facts.pinned)
        for param in params:
            if isinstance(param.type, TensorType):
                scope._input(param.name, param.type)
        return scope

    def _scalars(self, params: tuple[Param, ...], pinned: Mapping[str, Expr]) -> None:
        for param in params:
            if isinstance(param.type, ScalarType):
                value = pinned.get(param.name)
                unknown = self._unknown(param.name, whole=param.type == _WHOLE)
                self.values[param.name] = unknown if value is None else self.attr(value)

    def _unknown(self, name: str, *, whole: bool) -> Attr:
        return ("int", self.context.known.of(Size.symbol(name))) if whole else ("name", name)

    def _input(self, name: str, kind: TensorType) -> None:
        dtype = self.context.formats.of(self._input_dtype(name, kind.dtype))
        term = self.context.pool.make(
            "input", (), (name, kind.optional), dtype, self.shape(kind.dims)
        )
        self.values[name] = Value(term, None, dtype)

    def _input_dtype(self, name: str, dtype: str) -> str:
        if dtype in self.context.dtype_sets or dtype == ANY:
            own = f"{dtype} of {name}"  # two inputs of one set need not be equal
            if dtype != ANY:
                self.context.formats.assume_in(own, self.context.dtype_sets[dtype])
            return own
        return self.dtypes.setdefault(dtype, dtype)

    # --- calls ---------------------------------------------------------------------------------

    @staticmethod
    def of_call(decl: OpDecl, named: Mapping[str, Argument], context: Context) -> Scope:
        """The parameters of `decl` bound to arguments."""
        scope = Scope(context)
        waiting: list[tuple[Expr, Size]] = []
        for param in decl.params:
            value = named.get(param.name, scope._default(param.default))
            if value is None:
                continue
            scope.values[param.name] = value
            if isinstance(param.type, TensorType) and isinstance(value, Value):
                scope._bind_dtype(param.type.dtype, value.dtype)
                waiting.extend(scope._dims(decl, param.type, value.term.shape))
        scope._solve(waiting)
        return scope

    def _default(self, default: Const | ListOf | None) -> Argument | None:
        return self.constant(default.value) if isinstance(default, Const) else None

    def _bind_dtype(self, name: str, dtype: str) -> None:
        if name not in DTYPES and name not in (FP8, ANY) and name not in self.values:
            self.dtypes.setdefault(name, dtype)

    def _dims(self, decl: OpDecl, kind: TensorType, shape: Shape) -> list[tuple[Expr, Size]]:
        dims = kind.dims
        fixed = dims[1:] if kind.rank_free else dims
        leading = len(shape) - len(fixed)
        if leading < 0 or (leading and not kind.rank_free):
            raise Unprovable(f"`{decl.name}` takes a tensor of another rank")
        if kind.rank_free and isinstance(dims[0], Spread):
            self.spreads.setdefault(dims[0].name, shape[:leading])
        return list(zip(fixed, shape[leading:], strict=True))

    def _solve(self, waiting: list[tuple[Expr, Size]]) -> None:
        """Binds sizes in any order: `2 * N` waits until `N` is its only unknown."""
        while waiting:
            left = [item for item in waiting if not self._settle(*item)]
            if len(left) == len(waiting):
                return  # what stays open is refused where it is used
            waiting = left

    def _settle(self, pattern: Expr, actual: Size) -> bool:
        unknown = [n for n in sorted(names_in(pattern)) if self._known_size(n) is None]
        if any("." in name for name in unknown):
            return True
        if not unknown:
            return True
        if len(unknown) > 1:
            return False
        name = unknown[0]
        self.sizes[name] = Size.symbol(f"{name}?")
        try:
            written = self.size(pattern)
        finally:
            del self.sizes[name]
        found = None if written is None else solve(written, actual, f"{name}?")
        if found is None:
            return False
        self.sizes[name] = found
        return True

    def _known_size(self, name: str) -> Size | None:
        if name in self.sizes:
            return self.sizes[name]
        if name in self.spreads:
            return product(self.spreads[name])
        value = self.values.get(name)
        return attrs.size(value) if isinstance(value, tuple) else None

    # --- lookups -------------------------------------------------------------------------------

    def lookup(self, name: str) -> Argument:
        if name in self.values:
            return self.values[name]
        return self.attr(Name(name))

    def constant(self, value: int | float | str | bool | DType | None) -> Attr:
        attr = attrs.of_value(value)
        return ("dtype", self.dtype(str(attr[1]))) if attr[0] == "dtype" else attr

    def dtype(self, name: str) -> str:
        """The format a dtype name of this body stands for."""
        value = self.values.get(name)
        if isinstance(value, tuple) and value[0] in ("dtype", "name"):
            return self.context.formats.of(str(value[1]))
        if name not in self.dtypes and name not in DTYPES and name != FP8 and not self.open:
            raise Unprovable(f"the dtype `{name}` is not known")
        return self.context.formats.of(self.dtypes.get(name, name))

    def spread(self, name: str) -> Shape:
        if name not in self.spreads and not self.open:
            raise Unprovable(f"the sizes `{name}..` are not known")
        return self.spreads.get(name, (Size.symbol(name),))

    def shape(self, dims: tuple[Expr, ...]) -> Shape:
        sizes: list[Size] = []
        for dim in dims:
            if isinstance(dim, Spread):
                sizes.extend(self.spread(dim.name))
                continue
            size = self.size(dim)
            if size is None:
                raise Unprovable("a size that is not known")
            sizes.append(size)
        return tuple(sizes)

    # --- expressions ---------------------------------------------------------------------------

    def size(self, expr: Expr) -> Size | None:
        attr = self.attr(expr)
        return attrs.size(attr)

    def attr(self, expr: Expr) -> Attr:
        """The value of a scalar expression."""
        match expr:
            case Literal():
                return attrs.of_value(expr.value)
            case Name():
                return self._name(expr.id)
            case Unary(op="-"):
                return self._arithmetic("-", ("int", Size.const(0)), self.attr(expr.operand))
            case Binary():
                return self._arithmetic(expr.op, self.attr(expr.left), self.attr(expr.right))
            case Call():
                return self._called(expr)
            case Sequence():
                return ("expr", "in", *(self.attr(item) for item in expr.items))
            case Unary():
                return ("expr", expr.op, self.attr(expr.operand))
            case _:
                raise Unprovable("an expression that is no number")

    def _name(self, name: str) -> Attr:
        size = self._known_size(name)
        if size is not None and not isinstance(self.values.get(name), tuple):
            return ("int", size)
        value = self.values.get(name)
        if isinstance(value, tuple):
            return value
        if value is not None:
            return ("str", "a tensor")
        if name in self.dtypes or name in DTYPES or name == FP8:
            return ("dtype", self.dtype(name))
        if name in self.context.dtype_sets or "." in name:
            return ("name", name)
        if not self.open:
            raise Unprovable(f"`{name}` is not known")
        return self._unknown(name, whole=True)

    def _arithmetic(self, op: str, left: Attr, right: Attr) -> Attr:
        a, b = (x[1] if x[0] == "int" else None for x in (left, right))
        if a is None or b is None:
            return ("expr", op, left, right)
        if op in ("+", "-", "*"):
            return ("int", {"+": a.__add__, "-": a.__sub__, "*": a.__mul__}[op](b))
        if op == "/":
            quotient = a.over(b)
            return self._function("/", (a, b)) if quotient is None else ("int", quotient)
        if op in ("//", "%"):
            return self._function(op, (a, b))
        return ("expr", op, left, right)

    def _function(self, name: str, args: Iterable[Size]) -> Attr:
        return ("int", self.context.known.of(opaque(name, args)))

    def _called(self, expr: Call) -> Attr:
        if expr.func == "product":
            return ("int", product(self.shape(expr.args)))
        args = [self.attr(arg) for arg in expr.args]
        sizes = [a[1] for a in args if a[0] == "int"]
        if len(sizes) == len(args):
            return self._function(expr.func, sizes)
        return ("expr", expr.func, *args)

    # --- conditions ----------------------------------------------------------------------------

    def key(self, condition: Expr) -> Attr:
        """A condition as something to compare."""
        return self.attr(condition)

    def truth(self, expr: Expr) -> bool | None:
        match expr:
            case Unary(op="not"):
                inner = self.truth(expr.operand)
                return None if inner is None else not inner
            case Binary(op="and" | "or"):
                return _junction(expr.op, self.truth(expr.left), self.truth(expr.right))
            case Binary(op="==" | "!=" | "<" | "<=" | ">" | ">="):
                return self._compared(expr)
            case _:
                attr = self.attr(expr)
                return attr[1] if attr[0] == "bool" else None

    def _compared(self, expr: Binary) -> bool | None:
        for side, other in ((expr.left, expr.right), (expr.right, expr.left)):
            if isinstance(other, Literal) and other.value is None and isinstance(side, Name):
                missing = self._missing(side.id)
                return missing if missing is None or expr.op == "==" else not missing
        left, right = self.attr(expr.left), self.attr(expr.right)
        a, b = attrs.number(left), attrs.number(right)
        if a is not None and b is not None:
            outcomes = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b}
            return outcomes.get(expr.op, a >= b)
        if expr.op not in ("==", "!="):
            return None
        if left == right:
            return expr.op == "=="
        fixed = attrs.is_known(left) and attrs.is_known(right)
        if not fixed and left[0] == right[0] == "dtype":
            fixed = left[1] in DTYPES and right[1] in DTYPES
        return expr.op == "!=" if fixed else None

    def _missing(self, name: str) -> bool | None:
        value = self.values.get(name)
        if isinstance(value, Value):
            optional = value.term.op == "input" and value.term.attrs[1] is True
            return None if optional else False
        if isinstance(value, tuple):
            if value == attrs.NONE:
                return True
            return None if value[0] == "name" else False
        return None


def _junction(op: str, left: bool | None, right: bool | None) -> bool | None:
    absorbing = op == "or"
    if left is absorbing or right is absorbing:
        return absorbing
    return None if left is None or right is None else not absorbing


# --- facts ----------------------------------------------------------------------------------------


class Facts:
    """What conditions that hold at every site say about dtypes, scalars and sizes."""

    def __init__(self, context: Context, params: tuple[Param, ...]) -> None:
        self._context = context
        self._scalars = {
            p.name: p.type.kind
            for p in params
            if isinstance(p.type, ScalarType) and not p.type.is_list
        }
        self._dtypes = {
            p.type.dtype: p.type.dtype for p in params if isinstance(p.type, TensorType)
        }
        self._dtypes.update({n: n for n, kind in self._scalars.items() if kind == "dtype"})
        self.pinned: dict[str, Expr] = {}
        """Scalars and sizes with one value: `eps == 1e-6`, `group == env.tp_group`."""
        self._compared: list[Binary] = []

    def learn(self, conditions: tuple[Condition, ...], *, sizes: bool = True) -> None:
        self.learn_dtypes(conditions, self._dtypes)
        for part in (part for c in conditions for part in conjuncts(c.expr)):
            if isinstance(part, Binary) and part.op == "==" and isinstance(part.left, Name):
                self._pin(part.left.id, part.right)
            if sizes and isinstance(part, Binary) and part.op in _COMPARISONS:
                self._compared.append(part)

    def learn_dtypes(self, conditions: tuple[Condition, ...], names: Mapping[str, str]) -> None:
        """The same from the conditions of another op, whose dtypes `names` translates."""
        for part in (part for c in conditions for part in conjuncts(c.expr)):
            self._context.formats.learn(part, names, self._context.dtype_sets)

    def learn_sizes(self, scope: Scope) -> None:
        """What comparisons of whole numbers say, as `scope` reads them; equal names come first."""
        known = self._context.known
        for part in sorted(self._compared, key=_has_functions):
            left, right = (self._whole(side, scope) for side in (part.left, part.right))
            if left is None or right is None:
                continue
            if part.op == "==":
                known.assume_equal(left, right)
                self._learn_divisor(part, right, scope)
            else:
                known.assume_natural(_COMPARISONS[part.op](left, right))

    def _learn_divisor(self, part: Binary, rest: Size, scope: Scope) -> None:
        if not isinstance(part.left, Binary) or part.left.op != "%" or rest.value != 0:
            return
        size, divisor = (self._whole(side, scope) for side in (part.left.left, part.left.right))
        if size is not None and divisor is not None:
            self._context.known.assume_divides(divisor, size)

    def _whole(self, expr: Expr, scope: Scope) -> Size | None:
        """`expr` where it is surely a whole number."""
        if any(n in self._dtypes or self._scalars.get(n, "int") != "int" for n in names_in(expr)):
            return None
        if any(isinstance(e, Call) and e.func not in _OF_WHOLE_NUMBERS for e in walk(expr)):
            return None
        try:
            attr = scope.attr(expr)
        except Unprovable:
            return None
        return attr[1] if attr[0] == "int" else None

    def _pin(self, name: str, value: Expr) -> None:
        if name in self._dtypes:
            return
        fact = isinstance(value, Name) and "." in value.id and name in self._scalars
        number = isinstance(value, Literal) and value.value is not None
        if fact or (number and (name in self._scalars or _is_whole(value))):
            self.pinned.setdefault(name, value)


_COMPARISONS: dict[str, Callable[[Size, Size], Size]] = {
    "==": lambda a, b: a - b,
    ">=": lambda a, b: a - b,
    ">": lambda a, b: a - b - ONE,
    "<=": lambda a, b: b - a,
    "<": lambda a, b: b - a - ONE,
}
"""Each comparison of whole numbers as what is then not negative."""


_OF_WHOLE_NUMBERS = frozenset(("ceil_div", "round_up", "max", "min", "product"))


def _has_functions(part: Binary) -> bool:
    """Their arguments should be as all equalities of names make them."""
    parts = list(walk(part))
    calls = any(isinstance(e, Call) for e in parts)
    return calls or any(isinstance(e, Binary) and e.op in ("//", "%") for e in parts)


def _is_whole(expr: Expr) -> bool:
    return isinstance(expr, Literal) and type(expr.value) is int
