"""What conditions say about whole numbers: which are equal, divide others, or are not negative.

Every fact holds at every site, so whatever replaces one number by an equal one keeps every bit.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusiondsl.proof.size import ZERO, Monomial, Size


class Known:
    """Facts are added before any term is built, and then only asked."""

    def __init__(self) -> None:
        self._equal: dict[str, Size] = {}
        """Symbols that another number stands for; none of them occurs in any of these."""
        self._whole: list[tuple[Size, Size]] = []
        """Numbers with what divides them."""
        self._natural: list[Size] = []

    def __bool__(self) -> bool:
        return bool(self._equal or self._whole or self._natural)

    # --- facts ---------------------------------------------------------------------------------

    def assume_equal(self, left: Size, right: Size) -> None:
        """Nothing is learned where no symbol can be replaced."""
        difference = self.of(left) - self.of(right)
        found = next(_solved(difference), None)
        if found is None:
            return
        symbol, value = found
        settled = {name: old.substitute({symbol: value}) for name, old in self._equal.items()}
        if None in settled.values():
            return
        self._equal = {name: new for name, new in settled.items() if new is not None}
        self._equal[symbol] = value

    def assume_divides(self, divisor: Size, size: Size) -> None:
        self._whole.append((size, divisor))

    def assume_natural(self, size: Size) -> None:
        self._natural.append(size)

    # --- questions -----------------------------------------------------------------------------

    def of(self, size: Size) -> Size:
        """The same number with symbols replaced, so that equal ones are equal."""
        if not self._equal or not size.symbols() & self._equal.keys():
            return size
        replaced = size.substitute(self._equal)
        return size if replaced is None else replaced

    def divides(self, divisor: Size, size: Size) -> bool:
        divisor, size = self.of(divisor), self.of(size)
        return any(
            _is_whole(size.over(self.of(known))) and _is_whole(self.of(by).over(divisor))
            for known, by in ((divisor, divisor), *self._whole)
        )

    def is_natural(self, size: Size) -> bool:
        """Is it surely no negative number?"""
        size = self.of(size)
        above = (size - self.of(known) for known in (ZERO, *self._natural))
        return any(rest.value is not None and rest.value >= 0 for rest in above)


def _solved(difference: Size) -> Iterator[tuple[str, Size]]:
    """What symbols are where `difference` is nothing; what a function gives comes first."""
    for name in sorted(difference.symbols(), key=lambda name: (not _is_opaque(name), name)):
        value = _without(difference, name)
        if value is not None and not any(_mentions(other, name) for other in value.symbols()):
            yield name, value


def _without(difference: Size, name: str) -> Size | None:
    """What `name` is, where it is one summand by itself."""
    mine: Monomial = ((name, 1),)
    for monomial, factor in difference.terms:
        if monomial == mine and abs(factor) == 1:
            summand = Size(((mine, factor),))
            rest = difference - summand
            return None if name in rest.symbols() else (-rest if factor == 1 else rest)
    return None


def _is_opaque(symbol: str) -> bool:
    return "(" in symbol


def _mentions(symbol: str, name: str) -> bool:
    """May `symbol` be a function of `name`? Being cautious costs a proof at most."""
    return _is_opaque(symbol) and name in symbol


def _is_whole(quotient: Size | None) -> bool:
    """Is it a whole number whatever the sizes in it are?"""
    return quotient is not None and all(
        factor.denominator == 1 and all(power > 0 and name.isidentifier() for name, power in powers)
        for powers, factor in quotient.terms
    )
