"""Bodies: statements to flat calls, with the type of every value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fusiondsl.analysis.body import Body
from fusiondsl.analysis.calls import CallLowering
from fusiondsl.analysis.conditions import FUNCTIONS as SCALAR_FUNCTIONS
from fusiondsl.analysis.conditions import ExprChecker, let_value
from fusiondsl.analysis.dtypes import DTypes
from fusiondsl.analysis.exprs import show, walk
from fusiondsl.analysis.kinds import Kind
from fusiondsl.analysis.prims import Primitives
from fusiondsl.analysis.scope import Scope
from fusiondsl.analysis.signature import Signature, describe
from fusiondsl.analysis.values import AnyValue, ListValue, ScalarValue, TensorValue, Value
from fusiondsl.decl.dtypes import ANY, DTYPES, FP8
from fusiondsl.decl.primitives import FUNCTIONS
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims.dtypes import itemsize
from fusiondsl.dims.expr import (
    Binary,
    Call,
    DType,
    Expr,
    Literal,
    Method,
    Name,
    Subscript,
    Unary,
    Wildcard,
)
from fusiondsl.dims.expr import Sequence as ExprSequence
from fusiondsl.ir.program import (
    Branch,
    Computed,
    Const,
    OpDecl,
    Operand,
    Ref,
    TensorType,
    Unrounded,
)
from fusiondsl.syntax import ast

Results = Sequence[Value | None]
"""The values of a statement; None for what was already reported as broken."""


class Lowering:
    """Lowers the statements of one body.

    `assume` is set for patterns: what the graph must already satisfy is taken as a fact. `outer`
    holds the values of another body that may be read (those of `match`, in `replace`). `own`
    names values that need a call of their own even where they equal others.
    """

    def __init__(
        self,
        scope: Scope,
        dtypes: DTypes,
        signatures: Mapping[str, OpDecl],
        *,
        assume: bool,
        means: bool = False,
        wildcards: bool = False,
        outer: Body | None = None,
        first_temporary: int = 0,
        on_outer: Callable[[str, Span | None], None] | None = None,
        own: frozenset[str] = frozenset(),
    ) -> None:
        self.scope = scope
        self.dtypes = dtypes
        self.signatures = signatures
        self.assume = assume
        self.means = means
        self.wildcards = wildcards
        self.outer = outer
        self.on_outer = on_outer
        self.own = own
        self.arm = False
        """In an arm of a `case` a name is not just another name of a value outside."""
        self.body = Body(first_temporary)
        self.bound: dict[str, Value | None] = {}
        """What each name of the body is; None after an error."""
        self.prims = Primitives(self)
        self.calls = CallLowering(self)

    @property
    def diagnostics(self) -> Diagnostics:
        return self.scope.diagnostics

    def error(
        self,
        code: str,
        message: str,
        span: Span | None,
        notes: Sequence[str] = (),
        help: str | None = None,
    ) -> None:
        self.diagnostics.error(code, message, span, notes=notes, help=help)

    # --- statements ----------------------------------------------------------------------------

    def statements(self, statements: Sequence[ast.Statement]) -> None:
        for statement in statements:
            if isinstance(statement, ast.Case):
                self._case(statement)
            else:
                self._assign(statement)
        broken = [name for name, value in self.bound.items() if value is None]
        if broken and not self.diagnostics.has_errors:
            # nothing may be dropped in silence, whatever went wrong
            span = self.body.spans.get(broken[0], statements[0].span)
            self.error("FD221", f"`{broken[0]}` is not understood here", span)

    def _assign(self, statement: ast.Assign) -> None:
        values = self.results(statement.value)
        targets = statement.targets
        if values is not None and len(targets) > len(values):
            what = "value" if len(values) == 1 else "values"
            self.error(
                "FD203",
                f"{len(targets)} names for {len(values)} {what}",
                targets[len(values)].name.span,
            )
        for position, target in enumerate(targets):
            known = values is not None and position < len(values)
            value = values[position] if known and values is not None else None
            if target.name.name != "_":
                self._bind(target, value)

    def _bind(self, target: ast.Target, value: Value | None) -> None:
        name, span = target.name.name, target.name.span
        if not self._claim(name, span):
            return
        match value:
            case TensorValue():
                if (self.arm or name in self.own) and not self.body.is_fresh(value):
                    value = self.prims.copy(value, target.name.span)
                self.body.bind(name, value, span)
                self.bound[name] = self._annotated(target, self._named(name, value))
            case ScalarValue():
                self._bind_scalar(name, value, span)
            case None:
                self.body.spans[name] = span
                self.bound[name] = None
            case _:
                self.error("FD221", f"`{name}` would be neither a tensor nor a scalar", span)
                self.bound[name] = None

    def _bind_scalar(self, name: str, value: ScalarValue, span: Span) -> None:
        expr = let_value(ExprChecker(self.scope), value.expr, span)
        self.bound[name] = None if expr is None else replace(value, expr=expr)
        if expr is not None:
            self.scope.lets[name] = expr

    def _claim(self, name: str, span: Span) -> bool:
        first = self.body.spans.get(name)
        if first is None and name in self.bound:
            first = self.scope.spans.get(name)
        if first is not None:
            self.diagnostics.error(
                "FD108",
                f"`{name}` is assigned twice",
                span,
                labels=[Label(first, "first assigned here")],
                help="a name is one value; use a new name",
            )
            return False
        if self.outer is not None and name in self.outer.spans:
            self.body.spans[name] = span
            return True
        return self.scope.claim(name, span, "the value")

    def _named(self, name: str, value: TensorValue) -> TensorValue:
        if self.body.resolve(name) in self.body.types:
            return self.body.value(name)
        return value  # a parameter, or a value of `match`

    def _annotated(self, target: ast.Target, value: TensorValue) -> TensorValue:
        if target.type is None:
            return value
        if isinstance(target.type, ast.ScalarType):
            self.error("FD221", f"`{target.name.name}` is a tensor", target.type.span)
            return value
        known = set(self.scope.dims)
        wanted = Signature(self.scope).annotation(target.type)
        if wanted is None or value.type is None:
            return value
        new = frozenset(self.scope.dims - known)
        merged = self.agree(wanted, value.type, target.name.name, target.type.span, new)
        if merged is not None and value.name in self.body.types:
            self.body.types[value.name] = merged
            return replace(value, type=merged)
        return value

    def agree(
        self,
        wanted: TensorType,
        found: TensorType,
        name: str,
        span: Span | None,
        new: frozenset[str] = frozenset(),
    ) -> TensorType | None:
        """Holds a declared type against the inferred one; the more exact of both, or an error.

        `new` names sizes that the declared type introduces.
        """
        fits = len(wanted.dims) == len(found.dims) and self._agree_dtype(wanted, found)
        if fits:
            pairs = zip(wanted.dims, found.dims, strict=True)
            fits = all(self._agree_size(a, b, new) for a, b in pairs)
        if fits:
            return wanted
        self.error("FD206", f"`{name}` is {describe(found)}, not {describe(wanted)}", span)
        return None

    def _agree_dtype(self, wanted: TensorType, found: TensorType) -> bool:
        same = self.dtypes.same(wanted.dtype, found.dtype)
        if same is None and self.assume:
            self.dtypes.assume_equal(wanted.dtype, found.dtype, learned=True)
            return True
        return same is True or ANY in (wanted.dtype, found.dtype)

    def _agree_size(self, wanted: Expr, found: Expr, new: frozenset[str]) -> bool:
        if isinstance(found, Wildcard) or wanted == found:
            return True
        same = self.scope.sizes.equal(wanted, found)
        if same is None and isinstance(wanted, Name) and wanted.id in new:
            self.scope.sizes.assume_equal(wanted, found)
            return True
        if same is None and self.assume:
            self.scope.sizes.learn_equal(wanted, found)
            return True
        return same is True

    def _case(self, statement: ast.Case) -> None:
        if not self.means:
            self.error("FD221", "`case` may stand only in `means`", statement.span)
            return
        condition = ExprChecker(self.scope).condition(statement.condition)
        then = self._branch(statement.then)
        otherwise = self._branch(statement.otherwise)
        self.body.steps.append(
            Branch(condition, tuple(then.body.steps), tuple(otherwise.body.steps))
        )
        for name, value in then.bound.items():
            both = name in otherwise.bound
            if not both and statement.otherwise:
                continue
            self.bound[name] = value

    def _branch(self, statements: Sequence[ast.Statement]) -> Lowering:
        """One arm: it sees what stands before it, and its names may recur in the other arm."""
        saved = dict(self.scope.spans)
        arm = Lowering(self.scope, self.dtypes, self.signatures, assume=self.assume, means=True)
        arm.arm = True
        arm.body = self.body.arm()
        arm.bound.update(self.bound)
        arm.statements(statements)
        self.body.take(arm.body)
        for name in self.bound:
            del arm.bound[name]
        self.scope.spans = saved
        return arm

    # --- expressions ---------------------------------------------------------------------------

    def results(self, expr: Expr) -> Results | None:
        """All values of a statement's right side; None if how many is not known."""
        if isinstance(expr, Call) and not self._is_scalar_call(expr):
            if expr.func in FUNCTIONS and not self._is_op(expr.func):
                return self.prims.call(expr)
            return self.calls.results(expr)
        if isinstance(expr, Method):
            return self.prims.method(expr)
        return [self.value(expr)]

    def value(self, expr: Expr) -> Value | None:
        """One value; None if it was reported."""
        match expr:
            case Name():
                return self._name(expr)
            case Wildcard():
                return self._wildcard(expr)
            case Unary() if self._has_tensor(expr.operand):
                return self._unary(expr)
            case Binary() if self._has_tensor(expr):
                return self.prims.operator(expr)
            case Subscript():
                return self.prims.subscript(expr)
            case Method() | Call() if not self._is_scalar_call(expr):
                return self._single(expr)
            case ExprSequence():
                return self._list(expr)
            case _:
                return self.scalar(expr)

    def tensor(self, expr: Expr) -> TensorValue | None:
        """A value that has to be a tensor of known type."""
        value = self.value(expr)
        if value is None:
            return None
        if isinstance(value, TensorValue):
            return value if value.type is not None else None
        self.error("FD220", f"`{show(expr)}` is no tensor", expr.span)
        return None

    def _single(self, expr: Call | Method) -> Value | None:
        values = self.results(expr)
        if values is None or not values:
            return None
        if len(values) > 1:
            self.error(
                "FD203",
                f"`{show(expr)}` has {len(values)} values where one is needed",
                expr.span,
                help="give them names in a statement of its own",
            )
            return None
        return values[0]

    def _name(self, expr: Name) -> Value | None:
        name = expr.id
        if name in self.bound:
            self.scope.used.add(name)
            value = self.bound[name]
            return self._named(name, value) if isinstance(value, TensorValue) else value
        if self.outer is not None and self.outer.resolve(name) in self.outer.types:
            if self.on_outer is not None:
                self.on_outer(name, expr.span)
            return self.outer.value(name)
        if self.outer is not None:
            name = self.outer.resolve(name)  # another name of a parameter
        if name in self.scope.tensors:
            self.scope.used.add(name)
            return TensorValue(Ref(name), name, self.scope.tensors[name])
        return self.scalar(expr)

    def _wildcard(self, expr: Wildcard) -> AnyValue | None:
        if self.wildcards:
            return AnyValue(expr.span)
        self.error("FD221", "`_` may stand only in `match` and in forms", expr.span)
        return None

    def _unary(self, expr: Unary) -> Value | None:
        if expr.op == "-":
            return self.prims.apply("neg", [expr.operand], expr.span)
        if expr.op != "~" or not self.means:
            self.error("FD221", f"`{expr.op}` may not stand before a tensor here", expr.span)
            return None
        value = self.tensor(expr.operand)
        if value is None or not isinstance(value.operand, Ref):
            return value
        return replace(value, operand=Unrounded(value.name))

    def _list(self, expr: ExprSequence) -> Value | None:
        items = [self.value(item) for item in expr.items]
        known = tuple(item for item in items if item is not None)
        return ListValue(known) if len(known) == len(items) else None

    def scalar(self, expr: Expr) -> ScalarValue | None:
        checked, typed = ExprChecker(self.scope).check(expr)
        if typed.kind is Kind.UNKNOWN:
            return None
        if typed.kind is Kind.SET and isinstance(checked, ExprSequence):
            self.error("FD220", f"`{show(expr)}` is a set, not a value", expr.span)
            return None
        return ScalarValue(self._operand(checked, typed.kind), typed.kind, checked)

    def _operand(self, expr: Expr, kind: Kind) -> Operand:
        match expr:
            case Literal():
                return Const(expr.value)
            case Name() if expr.id in self.scope.scalars:
                return Ref(expr.id)
            case Name() if kind is Kind.DTYPE and expr.id not in self.scope.dtype_vars:
                return Const(DType(expr.id))
            case _:
                constant = self.scope.sizes.of(expr) if kind is Kind.INT else None
                value = None if constant is None else constant.as_int()
                return Computed(expr) if value is None else Const(value)

    def dtype_operand(self, name: str) -> Operand:
        """A dtype by its name in a type."""
        if name in self.scope.scalars:
            return Ref(name)
        concrete = name in DTYPES or name == FP8
        return Const(DType(name)) if concrete else Computed(Name(name))

    def width(self, name: str) -> int | None:
        """Bytes of an element, where that is known."""
        return itemsize(self.dtypes.of(name))

    # --- which expressions are tensors ---------------------------------------------------------

    def _has_tensor(self, expr: Expr) -> bool:
        return any(self._is_tensor(part) for part in walk(expr))

    def _is_tensor(self, expr: Expr) -> bool:
        match expr:
            case Name():
                bound = self.bound.get(expr.id)
                if expr.id in self.bound:
                    return bound is None or isinstance(bound, TensorValue)
                if self.outer is not None and expr.id in self.outer.spans:
                    return True
                return expr.id in self.scope.tensors
            case Method() | Subscript():
                return True
            case Call():
                return not self._is_scalar_call(expr)
            case _:
                return False

    def _is_op(self, name: str) -> bool:
        return self.scope.visible.find(self.scope.visible.definitions.ops, name) is not None

    def _is_scalar_call(self, expr: Expr) -> bool:
        if not isinstance(expr, Call) or self._is_op(expr.func):
            return False
        definitions = self.scope.visible.definitions
        called = (SCALAR_FUNCTIONS, definitions.tables, definitions.predicates)
        return any(expr.func in names for names in called)
