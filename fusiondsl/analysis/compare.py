"""A result against what it replaces: dtype, fp8 flavour, shape, layout."""

from __future__ import annotations

from fusiondsl.analysis.dtypes import DTypes
from fusiondsl.analysis.shapes import contiguous_strides
from fusiondsl.analysis.signature import describe
from fusiondsl.analysis.sizes import Sizes
from fusiondsl.analysis.unify import Mismatch
from fusiondsl.decl.dtypes import ANY
from fusiondsl.dims.expr import Expr, Name, Spread, Wildcard
from fusiondsl.dims.render import render
from fusiondsl.ir.program import TensorType


def dtype_problem(source: TensorType, target: TensorType, dtypes: DTypes) -> Mismatch | None:
    same = dtypes.same(source.dtype, target.dtype)
    if same is True:
        return None
    if ANY in (source.dtype, target.dtype):
        where = "matched" if source.dtype == ANY else "new"
        return Mismatch(
            "FD302",
            f"has a dtype that is not known: that of the {where} value",
            help="annotate it: `name: dtype[..] = ...`",
        )
    if dtypes.flavour_only(source.dtype, target.dtype):
        return Mismatch(
            "FD304",
            f"becomes `{target.dtype}`, but was `{source.dtype}`",
            ("`fp8` is f8e4m3fnuz on gfx942 and f8e4m3fn elsewhere: the codes mean other numbers",),
        )
    if same is False:
        return Mismatch("FD302", f"becomes `{target.dtype}`, but was `{source.dtype}`")
    return Mismatch(
        "FD302",
        f"becomes `{target.dtype}`, which need not be the `{source.dtype}` it was",
        help=f"add `{target.dtype} == {source.dtype}` to `where`",
    )


def shape_problem(source: TensorType, target: TensorType, sizes: Sizes) -> Mismatch | None:
    unknown = [d for d in (*source.dims, *target.dims) if isinstance(d, Wildcard)]
    fits = len(source.dims) == len(target.dims) and not unknown
    pairs = zip(source.dims, target.dims, strict=True) if fits else ()
    verdicts = [sizes.equal(_flat(a), _flat(b)) for a, b in pairs]
    if fits and all(v is True for v in verdicts):
        return None
    notes: tuple[str, ...] = ()
    if unknown:
        notes = ("the text does not determine every size: annotate the value",)
    elif fits and False not in verdicts:
        differing = next(
            (a, b)
            for a, b, v in zip(source.dims, target.dims, verdicts, strict=True)
            if v is not True
        )
        notes = (
            f"nothing says that `{render(differing[0])}` and `{render(differing[1])}` are equal",
        )
    return Mismatch("FD305", f"becomes {_shape(target)}, but was {_shape(source)}", notes)


def layout_problem(source: TensorType, target: TensorType, sizes: Sizes) -> Mismatch | None:
    if source.strides == target.strides:
        return None
    a, b = _strides(source), _strides(target)
    if a is not None and b is not None and len(a) == len(b):
        pairs = zip(a, b, strict=True)
        if all(sizes.equal(_flat(x), _flat(y)) is True for x, y in pairs):
            return None
    return Mismatch(
        "FD306",
        f"gets another layout: {describe(target)} for {describe(source)}",
        help="if nobody reads the memory directly, allow it: `allow { relayout: <name> }`",
    )


def _strides(kind: TensorType) -> tuple[Expr, ...] | None:
    if kind.strides is None:
        return None if kind.rank_free else contiguous_strides(kind.dims)
    return kind.strides


def _flat(size: Expr) -> Expr:
    return Name(size.name) if isinstance(size, Spread) else size


def _shape(kind: TensorType) -> str:
    return f"`[{', '.join(map(render, kind.dims))}]`"
