"""Formats: which dtypes a name may stand for, and what is lost between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusiondsl.decl.dtypes import DTYPES, FP8
from fusiondsl.dims.expr import Binary, Expr, Name, Sequence
from fusiondsl.proof.terms import REAL

HALF = frozenset({"bf16", "f16"})
NARROW = HALF | {"f32"}
"""What arithmetic computes in f32."""

ROUNDED = NARROW | {"f64"}
"""Formats a `round` difference is about: anything narrower is a quantisation."""

_FP8 = frozenset({"f8e4m3fn", "f8e4m3fnuz"})
_BYTES = frozenset({"f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"})
_HELD_BY = {
    "f64": NARROW | _BYTES | {"i8", "u8", "i16", "u16", "i32", "u32", "b8"},
    "f32": HALF | _BYTES | {"i8", "u8", "i16", "u16", "b8"},
}
"""Each wide format with the formats it holds every value of."""

_COMPUTING = "acc"


class Formats:
    """Facts about dtype names. A name is a dtype, `fp8`, or a variable."""

    def __init__(self) -> None:
        self._allowed: dict[str, frozenset[str]] = {}
        self._same: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The name that stands for all names equal to it."""
        while name in self._same:
            name = self._same[name]
        allowed = self._allowed.get(name)
        return next(iter(allowed)) if allowed is not None and len(allowed) == 1 else name

    def allowed(self, name: str) -> frozenset[str] | None:
        """What a format may be; None for anything."""
        name = self.of(name)
        if name in DTYPES:
            return frozenset({name})
        return _FP8 if name == FP8 else self._allowed.get(name)

    def known(self) -> tuple[object, ...]:
        """All facts, to compare with those of another proof."""
        return frozenset(self._allowed.items()), frozenset(self._same.items())

    # --- facts ---------------------------------------------------------------------------------

    def assume_in(self, name: str, members: Iterable[str]) -> None:
        name = self.of(name)
        if name in DTYPES or name == FP8:
            return
        known = self._allowed.get(name)
        new = frozenset(members)
        self._allowed[name] = new if known is None else known & new

    def assume_same(self, one: str, other: str) -> None:
        a, b = self.of(one), self.of(other)
        if a == b:
            return
        if a in DTYPES or a == FP8:
            a, b = b, a
        if a in DTYPES or a == FP8:
            return  # two dtypes: the condition never holds, and nothing follows for a site
        known = self._allowed.pop(a, None)
        self._same[a] = b
        if known is not None:
            self.assume_in(b, known)

    def learn(
        self, part: Expr, names: Mapping[str, str], sets: Mapping[str, tuple[str, ...]]
    ) -> None:
        """One conjunct of a condition; `names` maps the names of dtypes in it to formats."""
        if not isinstance(part, Binary) or not isinstance(part.left, Name):
            return
        left = names.get(part.left.id)
        if left is None:
            return
        if part.op == "==" and isinstance(part.right, Name):
            right = _named(part.right.id, names)
            if right is not None:
                self.assume_same(left, right)
        elif part.op == "in":
            members = _members(part.right, names, sets)
            if members is not None:
                self.assume_in(left, members)

    # --- questions -----------------------------------------------------------------------------

    def within(self, name: str, formats: frozenset[str]) -> bool:
        """Is it surely one of `formats`?"""
        allowed = self.allowed(name)
        return allowed is not None and allowed <= formats

    def is_float(self, name: str) -> bool:
        allowed = self.allowed(name.removeprefix(f"{_COMPUTING} "))
        return allowed is not None and all(DTYPES[dtype][2] for dtype in allowed)

    def computing(self, name: str) -> str:
        """The format in which arithmetic on `name` takes place: f32 for halves."""
        name = self.of(name)
        if self.within(name, NARROW):
            return "f32"
        if name in DTYPES or name == FP8 or name.startswith(_COMPUTING):
            return name
        return f"{_COMPUTING} {name}"

    def lossless(self, source: str, target: str) -> bool:
        """Does `target` hold every value of `source`, whatever the two stand for?"""
        source, target = self.of(source), self.of(target)
        if source == target or target == self.computing(source):
            return True
        held = self.allowed(source)
        wide = self.allowed(target)
        if held is None or wide is None:
            return False
        return all(w == h or h in _HELD_BY.get(w, ()) for w in wide for h in held)

    def rounding(self, name: str) -> bool:
        """Is a cast to it a rounding, and nothing more?"""
        return name == REAL or self.within(name.removeprefix(f"{_COMPUTING} "), ROUNDED)

    def promote(self, one: str, other: str) -> str:
        """The dtype of an operation on two tensors."""
        a, b = self.of(one), self.of(other)
        if a == b:
            return a
        for wide, narrow in ((a, b), (b, a)):
            if wide in ("f32", "f64") and self.lossless(narrow, wide):
                return wide
        if self.within(a, HALF) and self.within(b, HALF) and a in DTYPES and b in DTYPES:
            return "f32"
        return f"promote({', '.join(sorted((a, b)))})"


def _named(name: str, names: Mapping[str, str]) -> str | None:
    if name in DTYPES or name == FP8:
        return name
    return names.get(name)


def _members(
    expr: Expr, names: Mapping[str, str], sets: Mapping[str, tuple[str, ...]]
) -> frozenset[str] | None:
    if isinstance(expr, Name) and expr.id in sets:
        members: list[str] = list(sets[expr.id])
    elif isinstance(expr, Sequence):
        members = []
        for item in expr.items:
            if not isinstance(item, Name):
                return None
            members.extend(sets.get(item.id, (item.id,)))
    else:
        return None
    flat = {m for name in members for m in (_FP8 if name == FP8 else (name,))}
    return frozenset(flat) if flat <= DTYPES.keys() else None
