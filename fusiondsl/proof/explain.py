"""The first place where two sides part, as text with positions."""

from __future__ import annotations

from fusiondsl.diagnostics.source import Span
from fusiondsl.proof import attrs
from fusiondsl.proof.compare import Comparison
from fusiondsl.proof.inline import Side
from fusiondsl.proof.moves import move
from fusiondsl.proof.normalise import Normaliser
from fusiondsl.proof.render import render
from fusiondsl.proof.terms import Term, subterms
from fusiondsl.proof.values import Origin
from fusiondsl.proof.verdict import Cause


class Explainer:
    """Explains for one source and one target."""

    def __init__(self, comparison: Comparison, source: Side, target: Side) -> None:
        self._comparison = comparison
        self._source = source
        self._target = target

    def cause(self, output: str, source: Term, target: Term, kinds: frozenset[str]) -> Cause:
        normaliser = self._comparison.normaliser(kinds)
        parting = self._comparison.parting(source, target, kinds)
        ours, theirs = (_origins(side, normaliser) for side in (self._source, self._target))
        one = render(parting.source, _names(ours))
        other = render(parting.target, _names(theirs))
        special = self._special(parting.source, parting.target)
        message, refuted = special or _plainly(output, parting.source, parting.target, one, other)
        missing = self._missing(parting.source, parting.target) if special is None else None
        message = message if missing is None else f"{message}, and {missing}"
        return Cause(
            message,
            refuted,
            output,
            one,
            other,
            _span(parting.source, source, ours, normaliser),
            _span(parting.target, target, theirs, normaliser),
        )

    def _special(self, source: Term, target: Term) -> tuple[str, bool] | None:
        """A reason that lies deeper than two different terms."""
        for side, term in ((self._target, target), (self._source, source)):
            for node in subterms(term):
                if node.op == "empty":
                    return "`empty` holds whatever lay there before, and it is read", True
                if node.op == "unrounded":
                    return "what `~` skips is not known for every dtype", False
                if _is_open(node.format):
                    return f"what `{_variable(node.format)}` may be is not known", False
                if node.op == "call":
                    name = node.attrs[0]
                    if isinstance(name, tuple) and name[1] in side.meaningless:
                        return f"`{name[1]}` has no meaning", False
        return None

    def _missing(self, *terms: Term) -> str | None:
        """A fact with which one of these would be another term."""
        context = self._target.context
        moves = (move(context, term) for term in terms)
        reasons = (found.missing(context.known) for found in moves if found is not None)
        return next((reason for reason in reasons if reason is not None), None)


def _is_open(format: str) -> bool:
    """Does arithmetic in it depend on a dtype that nothing constrains?"""
    return format.startswith(("acc ", "promote("))


def _variable(format: str) -> str:
    return format.removeprefix("acc ")


def _plainly(output: str, source: Term, target: Term, one: str, other: str) -> tuple[str, bool]:
    if source.op == target.op == "call":
        found = _attribute(source, target)
        if found is not None:
            return f"`{output}` {found}", True
    if one == other:
        formats = f"{source.format} in the source and in {target.format} in the target"
        return f"`{output}` has `{one}` in {formats}", True
    return f"`{output}` has `{other}` where the source has `{one}`", True


def _attribute(source: Term, target: Term) -> str | None:
    """Two calls of one op with another attribute."""
    if source.attrs[0] != target.attrs[0]:
        return None
    for mine, other in zip(source.attrs[1:-1], target.attrs[1:-1], strict=False):
        assert isinstance(mine, tuple)
        assert isinstance(other, tuple)
        if mine != other and isinstance(mine[1], tuple) and isinstance(other[1], tuple):
            name = source.attrs[0]
            assert isinstance(name, tuple)
            return (
                f"has `{mine[0]} = {attrs.show(other[1])}` in `{name[1]}` where the source has "
                f"`{attrs.show(mine[1])}`"
            )
    return None


def _origins(side: Side, normaliser: Normaliser) -> dict[Term, Origin]:
    found: dict[Term, Origin] = {}
    for term, origin in side.origins.items():
        found.setdefault(normaliser.normal(term), origin)
    return found


def _names(origins: dict[Term, Origin]) -> dict[Term, str]:
    return {term: origin.name for term, origin in origins.items() if origin.name is not None}


def _span(
    part: Term, whole: Term, origins: dict[Term, Origin], normaliser: Normaliser
) -> Span | None:
    """The line that computes `part`, or the first that reads it."""
    if part in origins:
        return origins[part].span
    for node in subterms(normaliser.normal(whole)):
        if part in node.args and node in origins:
            return origins[node].span
    return None
