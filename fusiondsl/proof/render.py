"""Terms as text, as a rule would write them."""

from __future__ import annotations

from collections.abc import Mapping

from fusiondsl.proof import attrs
from fusiondsl.proof.terms import REAL, Term

Names = Mapping[Term, str]

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "sum_of": "+"}
_TIGHT = frozenset(("cast", "view", "slice", "neg"))
"""What binds its operand closer than any operator."""

DEPTH = 5
"""How much of a term is written out before its parts are called by name."""


def render(term: Term, names: Names, depth: int = DEPTH) -> str:
    return _text(term, names, depth, inner=False)


def _text(term: Term, names: Names, depth: int, *, inner: bool) -> str:
    if term.op == "input":
        return str(term.attrs[0])
    if term.op in ("scalar", "full"):
        return _mark(term.attrs[0]) if term.op == "scalar" else _full(term)
    name = names.get(term)
    if name is not None and depth < DEPTH:
        return name
    if depth <= 0:
        return ".."
    return _operation(term, names, depth - 1, inner=inner)


def _operation(term: Term, names: Names, depth: int, *, inner: bool) -> str:
    if term.op == "reciprocal" and term.args[0].op == "sqrt":
        return f"rsqrt({_text(term.args[0].args[0], names, depth, inner=False)})"
    infix = _INFIX.get(term.op)
    bound = infix is not None or term.op in _TIGHT
    parts = [_text(arg, names, depth, inner=bound) for arg in term.args]
    if infix is not None:
        text = f" {infix} ".join(parts)
        return f"({text})" if inner else text
    if term.op == "product_of":
        text = _product(term, [_text(arg, names, depth, inner=True) for arg in term.args])
        return f"({text})" if inner else text
    return _SPECIAL.get(term.op, _function)(term, parts)


def _product(term: Term, parts: list[str]) -> str:
    count = term.attrs[0]
    assert isinstance(count, int)
    return " / ".join((" * ".join(parts[:count]), *parts[count:]))


def _function(term: Term, parts: list[str]) -> str:
    return f"{term.op}({', '.join((*parts, *map(_mark, term.attrs)))})"


def _cast(term: Term, parts: list[str]) -> str:
    return f"{parts[0]}.to({format_name(term.format)})"


def _view(term: Term, parts: list[str]) -> str:
    return f"{parts[0]}.view({', '.join(map(str, term.shape))})"


def _slice(term: Term, parts: list[str]) -> str:
    start, stop = (_mark(mark) for mark in term.attrs[1:])
    behind = ", :" * (-1 - _axis(term))
    return f"{parts[0]}[.., {'' if start == '0' else start}:{stop}{behind}]"


def _axis(term: Term) -> int:
    mark = term.attrs[0]
    size = attrs.size(mark) if isinstance(mark, tuple) else None
    return -1 if size is None or size.value is None else size.value


def _call(term: Term, parts: list[str]) -> str:
    name, *given, _ = term.attrs
    rest = list(parts)
    args: list[str] = []
    for mark in given:
        assert isinstance(mark, tuple)
        if mark[1] == "tensor":
            args.append(rest.pop(0))
        elif mark[1] == "list":
            args.append(f"[{', '.join(rest[: mark[2]])}]")
        else:
            args.append(f"{mark[0]} = {_mark(mark[1])}")
    assert isinstance(name, tuple)
    return f"{name[1]}({', '.join(args)})"


def _case(term: Term, parts: list[str]) -> str:
    return f"case {_mark(term.attrs[0])} {{ {parts[0]} }} else {{ {parts[1]} }}"


def _empty(term: Term, parts: list[str]) -> str:
    return "empty memory"


def _full(term: Term) -> str:
    value = _mark(term.attrs[0])
    return "zeros" if value == "0.0" else f"full({value})"


def _neg(term: Term, parts: list[str]) -> str:
    return f"-{parts[0]}"


def _maybe(term: Term, parts: list[str]) -> str:
    return f"round?({parts[0]})"


_SPECIAL = {
    "cast": _cast,
    "view": _view,
    "slice": _slice,
    "call": _call,
    "case": _case,
    "empty": _empty,
    "maybe_round": _maybe,
    "neg": _neg,
}


def format_name(format: str) -> str:
    return "any precision" if format == REAL else format


def _mark(mark: object) -> str:
    return attrs.show(mark) if isinstance(mark, tuple) else str(mark)
