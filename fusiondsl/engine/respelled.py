"""Quotients, roots and means in spellings that differ in bits, read as each other.

An operation is read in another way only where it is not the one that is looked for. Every such
reading says by which named differences it is not the same; where it is the same bit for bit, by
none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import fx

from fusiondsl.engine import aten
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.reciprocals import (
    FLOATS,
    HALVES,
    inverse,
    is_about,
    is_number,
    is_power_of_two,
    is_reciprocal,
    reciprocals,
)
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.view import Call, View
from fusiondsl.engine.wanted import Wanted

KINDS = ("round", "recip", "reduce_order")
"""The named differences of other spellings, in the order they are listed."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """How the graph is spelled where it differs from what a rule says."""

    graph: str
    wanted: str
    kinds: tuple[str, ...]
    """The named differences."""
    owner: str = "the rule"

    def __str__(self) -> str:
        return f"the graph {self.graph} where {self.owner} {self.wanted}"


class Respelled(Recognised):
    """A call that is spelled as another primitive in the graph, or has such a call inside."""

    __slots__ = ("beyond",)

    def __init__(
        self,
        op: str,
        args: tuple[Any, ...],
        node: fx.Node,
        results: Mapping[int, list[Any]],
        nodes: tuple[fx.Node, ...],
        beyond: Iterable[Beyond] = (),
    ) -> None:
        super().__init__(op, args, node, results, nodes)
        self.beyond = tuple(beyond)

    @staticmethod
    def around(call: Recognised, inner: Iterable[Recognised]) -> Recognised:
        """A call in a form of several operations; itself, where none of them is respelled."""
        assert call.form is not None
        owner = f"the form `{call.form.name}` of `{call.op}`"
        found = dict.fromkeys(replace(b, owner=owner) for part in inner for b in part.beyond)
        if not found:
            return call
        made = Respelled(call.op, call.args, call.node, call.results, call.nodes, found)
        made.buffers, made.form, made.spelled = call.buffers, call.form, call.spelled
        return made


# --- what stands there --------------------------------------------------------------------------


class _Over(NamedTuple):
    """One over `value`."""

    value: Any
    nodes: tuple[fx.Node, ...]
    is_power: bool = False


class Others:
    """Other readings of the values of one graph."""

    def __init__(self, view: View, wanted: Wanted, possible: frozenset[str]) -> None:
        self._view = view
        self._wanted = wanted
        self.possible = possible
        """Primitives that something may be in another spelling."""
        self._known: dict[tuple[Any, str], Sequence[Recognised]] = {}
        self.inside: dict[Any, Recognised] = {}
        """Calls whose results the graph does not have, by these."""

    def of(self, value: Any, op: str) -> Sequence[Recognised]:
        """Calls of `op` that `value` may be read as, none of which stands there as such."""
        read = _READ.get(op)
        if read is None or op not in self.possible or not isinstance(value, fx.Node):
            return ()
        key = (value, op)
        if key not in self._known:
            call = self._primitive(value)
            dtype = _dtype(value)
            possible = call is not None and dtype in FLOATS
            self._known[key] = tuple(read(self, value, call, dtype)) if possible else ()
        return self._known[key]

    def has_reciprocal(self, node: fx.Node) -> bool:
        """A node is one over something, or a product with that."""
        call = self._primitive(node)
        if call is None or call.op != "prim.mul":
            return self._one_over(call) is not None
        return any(self._one_over(self._behind(x)) is not None for x, _ in _both(call))

    def _primitive(self, value: Any) -> Call | None:
        found = self._view.define(value)
        return found[0] if found is not None and found[0].op in _MAKERS else None

    def _behind(self, value: Any) -> Call | None:
        return self._primitive(self._view.strip(value)) if isinstance(value, VALUES) else None

    def _inside(self, op: str, arg: Any, like: Any, reader: fx.Node, nodes: Any, at: Any) -> Any:
        """A value that is not in the graph, which `reader` would read."""
        value = self._view.inside(op, (arg,), like, reader)
        self.inside[value] = Recognised(op, (arg,), at, {0: [value]}, nodes)
        return value

    # --- parts -----------------------------------------------------------------------------------

    def _one_over(self, call: Call | None) -> _Over | None:
        """What a call takes the reciprocal of."""
        if call is None:
            return None
        found: _Over | None = None
        if call.op == "prim.reciprocal":
            found = _Over(call.args[0], (call.node,))
        elif call.op == "prim.div" and is_one(call.args[0]):
            found = _Over(call.args[1], (call.node,))
        elif call.op == "prim.pow" and is_number(call.args[1]) and call.args[1] == -1:
            found = _Over(call.args[0], (call.node,), is_power=True)
        elif call.op == "prim.mul":
            # `1 / x` is traced as a product of this kind.
            inner = next((x for x, y in _both(call) if is_number(y) and y == 1), None)
            below = self._one_over(self._behind(inner))
            found = below and below._replace(nodes=(call.node, *below.nodes))
        return found if found is not None and self._is_like(found.value, call.node) else None

    def _is_like(self, value: Any, node: Any) -> bool:
        """The same dtype and sizes: nothing is promoted or broadcast."""
        if not isinstance(value, VALUES) or _dtype(value) is not _dtype(node):
            return False
        return self._view.shape(value) == self._view.shape(node)

    def _root(self, value: Any) -> Call | None:
        """The root that a value is."""
        call = self._behind(value)
        return call if call is not None and call.op == "prim.sqrt" else None

    # --- readings --------------------------------------------------------------------------------

    def _rsqrt(self, value: fx.Node, call: Call, dtype: torch.dtype) -> Iterator[Recognised]:
        over = self._one_over(call)
        root = None if over is None else self._root(over.value)
        if over is None or root is None:
            return
        beyond = Beyond("takes the reciprocal of a root", "takes `rsqrt`", _kinds(dtype))
        nodes = (*over.nodes, root.node)
        yield _made("prim.rsqrt", root.args, value, call, nodes, beyond)

    def _reciprocal(self, value: fx.Node, call: Call, dtype: torch.dtype) -> Iterator[Recognised]:
        yield from self._reciprocals("prim.reciprocal", [()], value, call, dtype)

    def _reciprocals(
        self,
        op: str,
        numerators: Iterable[tuple[Any, ...]],
        value: fx.Node,
        call: Call,
        dtype: torch.dtype,
    ) -> Iterator[Recognised]:
        """One over something, written with each of these in front."""
        over = self._one_over(call)
        if over is not None:
            power = Beyond("raises to -1", "takes a reciprocal", _kinds(dtype))
            for one in numerators:
                beyond = [power] if over.is_power else []
                yield _made(op, (*one, over.value), value, call, over.nodes, *beyond)
        elif call.op == "prim.rsqrt" and "prim.sqrt" in self._wanted.ops:
            root = self._inside("prim.sqrt", call.args[0], value, call.node, (), call.node)
            beyond = [Beyond("takes `rsqrt`", "takes the reciprocal of a root", _kinds(dtype))]
            for one in numerators:
                yield _made(op, (*one, root), value, call, (call.node,), *beyond)

    def _div(self, value: fx.Node, call: Call, dtype: torch.dtype) -> Iterator[Recognised]:
        yield from self._reciprocals("prim.div", [(1.0,), (1,)], value, call, dtype)
        if call.op != "prim.mul":
            return
        for x, factor in _both(call):
            if not isinstance(x, VALUES) or _dtype(x) is not dtype:
                continue
            if is_number(factor):
                yield from self._by_constant("prim.div", x, factor, value, call, dtype)
            elif isinstance(factor, VALUES) and _dtype(factor) is dtype:
                yield from self._by_reciprocal(x, factor, value, call, dtype)

    def _by_reciprocal(
        self, x: Any, factor: Any, value: fx.Node, call: Call, dtype: torch.dtype
    ) -> Iterator[Recognised]:
        below = self._behind(factor)
        over = self._one_over(below)
        kinds = _kinds(dtype)
        if over is not None:
            beyond = Beyond("multiplies by a reciprocal", "divides", kinds)
            nodes = (call.node, *over.nodes)
            yield _made("prim.div", (x, over.value), value, call, nodes, beyond)
        elif below is not None and below.op == "prim.rsqrt" and "prim.sqrt" in self._wanted.ops:
            at = below.node
            root = self._inside("prim.sqrt", below.args[0], factor, call.node, (at,), at)
            beyond = Beyond("multiplies by `rsqrt`", "divides by a root", kinds)
            yield _made("prim.div", (x, root), value, call, (call.node,), beyond)

    def _by_constant(
        self, op: str, x: Any, given: Any, value: fx.Node, call: Call, dtype: torch.dtype
    ) -> Iterator[Recognised]:
        """A product with a constant as a quotient by its reciprocal, or the other way round."""
        product = op == "prim.mul"
        constants = self._wanted.factors if product else self._wanted.divisors
        fits = [c for c in constants if _are_inverse(c, given, dtype, product=product)]
        if self._wanted.any_factor if product else self._wanted.any_divisor:
            # The constant is bound where it stands, as the number that it would have been.
            other = _first(reciprocals(given, dtype)) if product else inverse(given, dtype)
            whole = [int(other)] if other is not None and other == int(other) else []
            fits += [c for c in (other, *whole) if c is not None and not _is_among(c, fits)]
        if not fits and any(is_about(given, c) for c in constants):
            fits = [1.0 / given]  # which no rule asks for: the constant is what is wrong
        graph, wanted = ("divides", "multiplies") if product else ("multiplies", "divides")
        beyond = Beyond(f"{graph} by a constant", f"{wanted} by its reciprocal", ("recip",))
        for constant in fits:
            exact = is_power_of_two(constant)
            yield _made(op, (x, constant), value, call, (call.node,), *([] if exact else [beyond]))

    def _mul(self, value: fx.Node, call: Call, dtype: torch.dtype) -> Iterator[Recognised]:
        if call.op != "prim.div":
            return
        x, divisor = call.args
        if not isinstance(x, VALUES) or _dtype(x) is not dtype:
            return
        if is_number(divisor):
            yield from self._by_constant("prim.mul", x, divisor, value, call, dtype)
        elif isinstance(divisor, VALUES) and _dtype(divisor) is dtype:
            yield from self._over_value(x, divisor, value, call, dtype)

    def _over_value(
        self, x: Any, divisor: Any, value: fx.Node, call: Call, dtype: torch.dtype
    ) -> Iterator[Recognised]:
        node, kinds = call.node, _kinds(dtype)
        root = self._root(divisor)
        if root is not None and "prim.rsqrt" in self._wanted.ops:
            at = root.node
            inner = self._inside("prim.rsqrt", root.args[0], divisor, node, (at,), at)
            beyond = Beyond("divides by a root", "multiplies by `rsqrt`", kinds)
            yield _made("prim.mul", (x, inner), value, call, (node,), beyond)
        if "prim.reciprocal" in self._wanted.ops:
            inner = self._inside("prim.reciprocal", divisor, divisor, node, (), node)
            beyond = Beyond("divides", "multiplies by a reciprocal", kinds)
            yield _made("prim.mul", (x, inner), value, call, (node,), beyond)

    def _mean(self, value: fx.Node, call: Call, dtype: torch.dtype) -> Iterator[Recognised]:
        operands = _both(call) if call.op == "prim.mul" else [call.args]
        if call.op not in ("prim.mul", "prim.div"):
            return
        for total, given in operands:
            made = self._behind(total)
            if made is None or made.op != "prim.sum" or not self._is_like(total, value):
                continue
            source, axis = made.args
            size = self._size(source, axis)
            if size is None or not self._counts(call.op, given, size, dtype):
                continue
            how = "divides a sum" if call.op == "prim.div" else "multiplies a sum by a constant"
            kinds = _kinds(dtype, exact=is_power_of_two(size), is_sum=True)
            beyond = [Beyond(how, "takes the mean", kinds)] if kinds else []
            nodes = (call.node, made.node)
            yield _made("prim.mean", made.args, value, call, nodes, *beyond)

    def _size(self, source: Any, axis: int) -> Any:
        shape = self._view.shape(source) if isinstance(source, VALUES) else None
        return shape[axis] if shape is not None and -len(shape) <= axis else None

    def _counts(self, op: str, given: Any, size: Any, dtype: torch.dtype) -> bool:
        """`given` is as many as are added up, or one over that."""
        if type(size) is not int or size < 1:
            return False
        if op == "prim.mul":
            return is_reciprocal(given, size, dtype)
        return is_number(given) and bool(given == size)


_Read = Callable[[Others, fx.Node, Any, Any], Iterator[Recognised]]
_READ: Mapping[str, _Read] = {
    "prim.rsqrt": Others._rsqrt,
    "prim.reciprocal": Others._reciprocal,
    "prim.div": Others._div,
    "prim.mul": Others._mul,
    "prim.mean": Others._mean,
}
ENDS: Mapping[str, frozenset[str]] = {
    "prim.rsqrt": frozenset({"prim.reciprocal", "prim.div", "prim.pow", "prim.mul"}),
    "prim.reciprocal": frozenset({"prim.div", "prim.pow", "prim.mul", "prim.rsqrt"}),
    "prim.div": frozenset({"prim.mul", "prim.reciprocal", "prim.pow", "prim.rsqrt"}),
    "prim.mul": frozenset({"prim.div"}),
    "prim.mean": frozenset({"prim.div", "prim.mul"}),
}
"""What the other spellings of a primitive end in."""
_FULL_IDS = frozenset(map(id, (torch.ops.aten.full.default, torch.ops.aten.scalar_tensor.default)))
_MAKERS = frozenset({"prim.sqrt", "prim.sum"}).union(*ENDS.values())
OTHER_TARGETS: Mapping[str, tuple[Any, ...]] = {
    **{
        op: tuple(t for end in sorted(ends) for t in aten.TARGETS[end]) for op, ends in ENDS.items()
    },
    "prim.sqrt": aten.TARGETS["prim.rsqrt"],
}
"""By primitive: the overloads that its other spellings end in."""


# --- small things -------------------------------------------------------------------------------


def is_one(value: Any) -> bool:
    """The constant, or a tensor full of it."""
    if isinstance(value, fx.Node) and id(value.target) in _FULL_IDS:
        value = next(reversed(value.args[:2]), None)
    return is_number(value) and bool(value == 1)


def _made(
    op: str,
    args: Iterable[Any],
    value: fx.Node,
    call: Call,
    nodes: Iterable[fx.Node],
    *beyond: Beyond,
) -> Respelled:
    return Respelled(op, tuple(args), call.node, {0: [value]}, tuple(nodes), beyond)


def _kinds(dtype: torch.dtype, *, exact: bool = False, is_sum: bool = False) -> tuple[str, ...]:
    """In half precision a value in between is rounded, and kernels add in orders of their own."""
    half = dtype in HALVES
    there = (half, not exact, half and is_sum)
    return tuple(kind for kind, needed in zip(KINDS, there, strict=True) if needed)


def _both(call: Call) -> Sequence[tuple[Any, Any]]:
    x, y = call.args
    return (x, y), (y, x)


def _are_inverse(constant: Any, given: Any, dtype: torch.dtype, *, product: bool) -> bool:
    if product:
        return is_reciprocal(constant, given, dtype)
    return is_reciprocal(given, constant, dtype)


def _is_among(constant: Any, others: Iterable[Any]) -> bool:
    """Type and all: `2` is not `2.0`."""
    return any(type(constant) is type(other) and constant == other for other in others)


def _first(found: Sequence[float]) -> float | None:
    return found[0] if found else None


def _dtype(value: Any) -> torch.dtype | None:
    tensor = value.meta.get("val")
    return tensor.dtype if isinstance(tensor, torch.Tensor) else None
