"""Dtypes as the checker compares them: variables, sets, `fp8`, promotion."""

from __future__ import annotations

from collections.abc import Callable

from fusiondsl.decl.dtypes import ANY, DTYPES, FP8, fp8_of

FLAVOURS = frozenset({"f8e4m3fn", "f8e4m3fnuz"})


class DTypes:
    """The dtype facts of one body: which variables are equal, what each may be."""

    def __init__(self, set_members: Callable[[str], tuple[str, ...] | None]) -> None:
        self._set_members = set_members
        self._parent: dict[str, str] = {}
        self._allowed: dict[str, frozenset[str]] = {}
        self.fp8: str | None = None
        """What `fp8` is, where `where` fixes the architecture."""
        self.learned: list[tuple[str, str]] = []
        """Pairs of variables that were only assumed to be equal."""

    def assume_archs(self, archs: list[str]) -> None:
        flavours = {fp8_of(arch) for arch in archs}
        if len(flavours) == 1:
            self.fp8 = flavours.pop()

    def of(self, name: str) -> str:
        """The dtype a name stands for, or its variable's representative."""
        while name in self._parent:
            name = self._parent[name]
        return self.fp8 if name == FP8 and self.fp8 is not None else name

    def is_concrete(self, name: str) -> bool:
        name = self.of(name)
        return name in DTYPES or name == FP8

    def allowed(self, name: str) -> frozenset[str] | None:
        """All dtypes it may be; None for any."""
        name = self.of(name)
        if name in DTYPES or name == FP8:
            return frozenset({name})
        members = self._set_members(name)
        if members is not None:
            return frozenset(members)
        return self._allowed.get(name)

    def same(self, a: str, b: str) -> bool | None:
        """Equal, different, or not known."""
        left, right = self.of(a), self.of(b)
        mine, others = self.allowed(left), self.allowed(right)
        if left == right and not self._is_loose(left):
            return True
        if mine is None or others is None:
            return None
        if len(mine) == 1 and mine == others:
            return True
        return False if not self._overlap(mine, others) else None

    def _is_loose(self, name: str) -> bool:
        """The same name twice need not be the same dtype."""
        if name == ANY:
            return True
        members = self._set_members(name) if name not in DTYPES else None
        return members is not None and len(members) > 1

    def _overlap(self, a: frozenset[str], b: frozenset[str]) -> bool:
        return bool(a & b)

    def flavour_only(self, a: str, b: str) -> bool:
        """`fp8` against one fixed flavour: equal on some architectures only."""
        pair = {self.of(a), self.of(b)}
        return pair <= FLAVOURS | {FP8} and len(pair) == 2

    def assume_equal(self, a: str, b: str, *, learned: bool = False) -> bool:
        """Takes an equality as a fact; False if it cannot be."""
        left, right = self.of(a), self.of(b)
        if self.same(left, right) is False:
            return False
        if left == right or self._is_loose(left) or self._is_loose(right):
            return True
        if self.is_concrete(left) or (not self.is_concrete(right) and left < right):
            left, right = right, left
        mine, others = self._allowed.get(left), self._allowed.get(right)
        if mine is not None and not self.is_concrete(right):
            self._allowed[right] = mine if others is None else mine & others
        self._parent[left] = right
        if learned:
            self.learned.append((a, b))
        return True

    def assume_in(self, name: str, members: frozenset[str]) -> bool:
        name = self.of(name)
        known = self.allowed(name)
        if known is not None and not known & members:
            return False
        if not self.is_concrete(name) and self._set_members(name) is None:
            self._allowed[name] = members if known is None else known & members
        return True

    def promote(self, a: str, b: str) -> str:
        """The dtype of an operation on two tensors, `any` where it depends."""
        left, right = self.of(a), self.of(b)
        if self.same(left, right) is True:
            return a
        if left in DTYPES and right in DTYPES:
            return _promote(left, right)
        for wide, other in ((left, right), (right, left)):
            narrow = self.allowed(other)
            if wide == "f32" and (narrow is None or narrow <= _BELOW_F32):
                return wide
        return ANY


_BELOW_F32 = frozenset(
    name for name, (_, size, is_float) in DTYPES.items() if not is_float or 1 < size <= 4
)


def _promote(a: str, b: str) -> str:
    (_, a_size, a_float), (_, b_size, b_float) = DTYPES[a], DTYPES[b]
    if a_float != b_float:
        return a if a_float else b
    if a_float and (a_size == 1 or b_size == 1):
        return ANY
    if a_size == b_size:
        return "f32" if a_float else _promote_signs(a, b)
    return a if a_size > b_size else b


def _promote_signs(a: str, b: str) -> str:
    if "b8" in (a, b):
        return b if a == "b8" else a
    size = DTYPES[a][1]
    return {1: "i16", 2: "i32"}.get(size, "i64")


def as_float(dtype: str, dtypes: DTypes) -> str:
    """The dtype after an operation that makes floats of integers."""
    concrete = dtypes.of(dtype)
    return "f32" if concrete in DTYPES and not DTYPES[concrete][2] else dtype
