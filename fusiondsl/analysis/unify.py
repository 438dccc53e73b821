"""One call against a declaration: what the op's dtypes and sizes are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusiondsl.analysis.dtypes import DTypes
from fusiondsl.analysis.exprs import rewrite, substitute
from fusiondsl.analysis.signature import describe
from fusiondsl.analysis.sizes import Sizes, product
from fusiondsl.decl.dtypes import ANY, DTYPES, FP8
from fusiondsl.dims.expr import DType, Expr, Literal, Name, Spread, Wildcard
from fusiondsl.dims.names import names
from fusiondsl.dims.render import render
from fusiondsl.ir.program import (
    Computed,
    Const,
    OpDecl,
    Operand,
    Ref,
    Result,
    ScalarType,
    TensorType,
    Type,
)

UNKNOWN_SIZE = Wildcard()
"""A size that the text does not determine."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why an argument does not fit its parameter."""

    code: str
    message: str
    notes: tuple[str, ...] = ()
    help: str | None = None


class Unifier:
    """Binds the dtype and size names of `decl` to those of the calling body.

    Where `assume` is set (patterns: the graph has already accepted the call) what is not known to
    differ is taken as a fact about the caller's names; otherwise it has to be known.
    """

    def __init__(
        self,
        decl: OpDecl,
        dtypes: DTypes,
        sizes: Sizes,
        *,
        assume: bool,
        set_members: Callable[[str], tuple[str, ...] | None],
    ) -> None:
        self.decl = decl
        self.dtypes = dtypes
        self.sizes = sizes
        self.assume = assume
        self._set_members = set_members
        self._dtype_of: dict[str, str] = {}
        self._size_of: dict[str, Expr] = {}
        self._spread_of: dict[str, tuple[Expr, ...]] = {}
        self._postponed: list[tuple[Expr, Expr, str]] = []

    # --- scalars -------------------------------------------------------------------------------

    def scalar(self, name: str, kind: ScalarType, operand: Operand) -> None:
        """Remembers what sizes and result dtypes need: integers and dtypes."""
        if kind.is_list:
            return
        if kind.kind == "int":
            size = _size_of_operand(operand)
            if size is not None:
                self._size_of[name] = size
        elif kind.kind == "dtype":
            self._dtype_of[name] = _dtype_of_operand(operand)

    # --- tensors -------------------------------------------------------------------------------

    def tensor(self, kind: TensorType, actual: TensorType, what: str) -> Mismatch | None:
        return self._dtype(kind, actual, what) or self._dims(kind, actual, what)

    def _dtype(self, kind: TensorType, actual: TensorType, what: str) -> Mismatch | None:
        wanted = kind.dtype
        if wanted == ANY:
            return None
        if wanted in DTYPES or wanted == FP8:
            return self._equal_dtype(wanted, actual.dtype, what, f"`{self.decl.name}` needs")
        members = self._set_members(wanted)
        if members is not None:
            return self._member(frozenset(members), wanted, actual.dtype, what)
        bound = self._dtype_of.get(wanted)
        if bound is None:
            self._dtype_of[wanted] = actual.dtype
            return None
        return self._equal_dtype(bound, actual.dtype, what, f"`{wanted}` is here already")

    def _equal_dtype(self, wanted: str, found: str, what: str, why: str) -> Mismatch | None:
        same = self.dtypes.same(wanted, found)
        if same is True or (self.assume and same is None and self._learn(wanted, found)):
            return None
        if self.dtypes.flavour_only(wanted, found):
            return Mismatch(
                "FD208",
                f"{what} is `{found}`, but {why} `{wanted}`",
                ("`fp8` is f8e4m3fnuz on gfx942 and f8e4m3fn elsewhere",),
            )
        if same is False:
            return Mismatch("FD207", f"{what} is `{found}`, but {why} `{wanted}`")
        return Mismatch(
            "FD301",
            f"{what} is `{found}`, which need not be the `{wanted}` that `{self.decl.name}` needs",
            (f"nothing in `match` or `where` says that `{found}` is `{wanted}`",),
            f"add `{found} == {wanted}` to `where`, or use one dtype variable for both",
        )

    def _learn(self, wanted: str, found: str) -> bool:
        if ANY in (wanted, found):
            return True
        return self.dtypes.assume_equal(wanted, found, learned=True)

    def _member(
        self, members: frozenset[str], wanted: str, found: str, what: str
    ) -> Mismatch | None:
        allowed = self.dtypes.allowed(found)
        if allowed is not None and allowed <= members:
            return None
        if self.assume and self.dtypes.assume_in(found, members):
            return None
        if allowed is not None and not allowed & members:
            return Mismatch("FD207", f"{what} is `{found}`, which is not in `{wanted}`")
        return Mismatch(
            "FD301",
            f"{what} is `{found}`, which need not be in `{wanted}` as `{self.decl.name}` needs",
            (),
            f"add `{found} in {wanted}` to `where`",
        )

    def _dims(self, kind: TensorType, actual: TensorType, what: str) -> Mismatch | None:
        pattern, dims = kind.dims, actual.dims
        if pattern and isinstance(pattern[0], Spread):
            tail = pattern[1:]
            split = len(dims) - len(tail)
            if split < 0 or any(isinstance(d, Spread) for d in dims[split:]):
                return self._rank(kind, actual, what)
            problem = self._spread(pattern[0].name, dims[:split], what)
            return problem or self._each(tail, dims[split:], what)
        if len(pattern) != len(dims):
            return self._rank(kind, actual, what)
        if dims and isinstance(dims[0], Spread):
            # a regrouping: the op sees all leading dimensions as one
            dims = (Name(dims[0].name), *dims[1:])
        return self._each(pattern, dims, what)

    def _rank(self, kind: TensorType, actual: TensorType, what: str) -> Mismatch:
        return Mismatch(
            "FD209",
            f"{what} is {describe(actual)}, but `{self.decl.name}` takes {describe(kind)}",
            ("the numbers of dimensions differ",),
        )

    def _spread(self, name: str, dims: tuple[Expr, ...], what: str) -> Mismatch | None:
        bound = self._spread_of.get(name)
        if bound is None:
            self._spread_of[name] = dims
            self._size_of[name] = self.sizes.simplify(product([_scalar_size(d) for d in dims]))
            return None
        if len(bound) == len(dims):
            return self._equal_sizes(bound, dims, what, name)
        left = product([_scalar_size(d) for d in bound])
        right = product([_scalar_size(d) for d in dims])
        return self._equal_sizes((left,), (right,), what, name)

    def _equal_sizes(
        self, bound: tuple[Expr, ...], dims: tuple[Expr, ...], what: str, name: str
    ) -> Mismatch | None:
        for expected, found in zip(bound, dims, strict=True):
            problem = self._equal_size(expected, found, what, f"`{name}..`")
            if problem is not None:
                return problem
        return None

    def _each(
        self, pattern: tuple[Expr, ...], dims: tuple[Expr, ...], what: str
    ) -> Mismatch | None:
        for expected, found in zip(pattern, dims, strict=True):
            problem = self._size(expected, found, what)
            if problem is not None:
                return problem
        return None

    def _size(self, pattern: Expr, found: Expr, what: str) -> Mismatch | None:
        if isinstance(found, Wildcard):
            return None
        if isinstance(pattern, Name) and pattern.id not in self._size_of:
            self._size_of[pattern.id] = found
            return None
        unbound = sorted(names(pattern) - self._size_of.keys())
        if not unbound:
            return self._equal_size(substitute(pattern, self._size_of), found, what, None)
        solved = None
        if len(unbound) == 1:
            # Sizes of the caller may have the same name as the one to be found.
            own = f"{unbound[0]} of {self.decl.name}"
            known = substitute(pattern, {**self._size_of, unbound[0]: Name(own)})
            solved = self.sizes.solve(known, own, found)
        if solved is None:
            self._postponed.append((pattern, found, what))
        else:
            self._size_of[unbound[0]] = solved
        return None

    def _equal_size(
        self, expected: Expr, found: Expr, what: str, name: str | None
    ) -> Mismatch | None:
        same = self.sizes.equal(_scalar_size(expected), _scalar_size(found))
        if same is True or isinstance(expected, Wildcard) or isinstance(found, Wildcard):
            return None
        if same is None and self.assume:
            self.sizes.learn_equal(_scalar_size(expected), _scalar_size(found))
            return None
        sizes = f"`{render(found)}` where `{self.decl.name}` needs `{render(expected)}`"
        if name is not None:
            sizes += f" (as for {name} before)"
        if same is False:
            return Mismatch("FD210", f"{what} has size {sizes}")
        condition = f"{render(_scalar_size(found))} == {render(_scalar_size(expected))}"
        return Mismatch(
            "FD210",
            f"{what} has size {sizes}",
            ("nothing in `match` or `where` says that they are equal",),
            f"add `{condition}` to `where`",
        )

    # --- results -------------------------------------------------------------------------------

    def finish(self) -> Mismatch | None:
        """Sizes that later arguments determined."""
        for pattern, found, what in self._postponed:
            if names(pattern) <= self._size_of.keys():
                known = substitute(pattern, self._size_of)
                problem = self._equal_size(known, found, what, None)
                if problem is not None:
                    return problem
        return None

    def result(self, result: Result) -> TensorType | None:
        """The type of a result here; None for a scalar one."""
        return self.instantiate(result.type)

    def instantiate(self, kind: Type) -> TensorType | None:
        if isinstance(kind, ScalarType):
            return None
        dims: list[Expr] = []
        for dim in kind.dims:
            if isinstance(dim, Spread):
                dims.extend(self._spread_of.get(dim.name, (UNKNOWN_SIZE,)))
            else:
                dims.append(self._instance(dim))
        strides = None
        if kind.strides is not None:
            strides = tuple(self._instance(s) for s in kind.strides)
        return TensorType(self._result_dtype(kind.dtype), tuple(dims), strides)

    def bound(self, name: str) -> Expr | None:
        """What a size or dtype of the declaration is here, where that is known."""
        if name in self._dtype_of:
            return Name(self._dtype_of[name])
        return self._size_of.get(name)

    def _instance(self, size: Expr) -> Expr:
        if isinstance(size, Spread) or not names(size) <= self._size_of.keys():
            return UNKNOWN_SIZE
        return self.sizes.simplify(substitute(size, self._size_of))

    def _result_dtype(self, name: str) -> str:
        if name in DTYPES or name in (FP8, ANY):
            return name
        return self._dtype_of.get(name, ANY)


def _scalar_size(size: Expr) -> Expr:
    """`tokens..` as the number of its elements."""

    def change(e: Expr) -> Expr | None:
        return Name(e.name, span=e.span) if isinstance(e, Spread) else None

    return rewrite(size, change)


def _size_of_operand(operand: Operand) -> Expr | None:
    match operand:
        case Const(value=int() as value) if not isinstance(value, bool):
            return Literal(value)
        case Ref():
            return Name(operand.name)
        case Computed():
            return operand.expr
        case _:
            return None


def _dtype_of_operand(operand: Operand) -> str:
    match operand:
        case Const(value=DType() as value):
            return value.name
        case Ref():
            return operand.name
        case Computed(expr=Name() as name):
            return name.id
        case _:
            return ANY
