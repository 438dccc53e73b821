"""`--answer`: what the command line says to the extern predicates of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusiondsl.analysis.exprs import show
from fusiondsl.analysis.signature import as_float, constant, describe, fits
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.expr import Call, DType, Expr, Name
from fusiondsl.ir.program import Const, Param, Predicate, Program, ScalarType
from fusiondsl.target import Answer, Fact

OPTION = "--answer"
USAGE = 2

_VALUES = {"true": True, "false": False}


def read_answers(texts: Iterable[str], program: Program) -> tuple[Answer, ...]:
    """Each text is `name = true` or `name(argument = value, ...) = true`; errors are located."""
    diagnostics = Diagnostics()
    found = [_Reader(text, program, diagnostics).answer() for text in texts]
    if diagnostics.has_errors:
        raise FusionError(diagnostics, USAGE)
    return tuple(answer for answer in found if answer is not None)


class _Reader:
    """One answer."""

    def __init__(self, text: str, program: Program, diagnostics: Diagnostics) -> None:
        self._source = Source(OPTION, text)
        self._program = program
        self._diagnostics = diagnostics

    def answer(self) -> Answer | None:
        text = self._source.text
        question, equals, value = text.rpartition("=")
        answered = _VALUES.get(value.strip()) if equals else None
        if answered is None:
            start = len(question) + len(equals) if equals else 0
            self._wrong("an answer ends in `= true` or `= false`", self._span(start, len(text)))
            return None
        asked = self._asked(question)
        if asked is None:
            return None
        name = asked.func if isinstance(asked, Call) else asked.id
        predicate = self._program.predicates.get(name)
        if predicate is None:
            self._unknown(name, asked.func_span if isinstance(asked, Call) else asked.span)
            return None
        if isinstance(asked, Name):
            return Answer(name, answered)
        args = self._arguments(predicate, asked)
        return None if args is None else Answer(name, answered, args)

    def _asked(self, question: str) -> Call | Name | None:
        from fusiondsl.syntax.fuse import Piece, parse_piece

        expr = parse_piece("expression_text", Piece(question), self._source, self._diagnostics)
        if isinstance(expr, Call | Name):
            return expr
        if expr is not None:
            self._wrong(f"`{show(expr)}` is no question", expr.span)
        return None

    # --- arguments -----------------------------------------------------------------------------

    def _arguments(self, predicate: Predicate, asked: Call) -> Mapping[str, Fact] | None:
        names = [param.name for param in predicate.params]
        given = [*zip(names, asked.args, strict=False)]
        given += [(keyword.name, keyword.value) for keyword in asked.kwargs]
        params = {param.name: param for param in predicate.params}
        unknown = next((name for name, _ in given if name not in params), None)
        missing = [name for name in names if name not in dict(given)]
        if len(asked.args) > len(names) or unknown is not None or missing:
            self._about_others(predicate, asked)
            return None
        if len(given) > len(names):
            self._wrong("an argument is given twice", asked.span)
            return None
        values = {name: self._value(params[name], value) for name, value in given}
        facts = {name: value for name, value in values.items() if value is not None}
        return facts if len(facts) == len(values) else None

    def _value(self, param: Param, written: Expr) -> Fact | None:
        kind = param.type
        assert isinstance(kind, ScalarType)
        plain = ScalarType("str") if kind.kind == "layer" else kind
        value = constant(written)
        if not isinstance(value, Const) or not fits(value, plain):
            self._wrong(
                f"`{param.name}` cannot be `{show(written)}`",
                written.span,
                f"`{param.name}` is {'the name of a layer' if plain != kind else describe(kind)}",
            )
            return None
        found = as_float(value, plain)
        assert isinstance(found, Const)
        return found.value.name if isinstance(found.value, DType) else found.value

    # --- diagnostics ---------------------------------------------------------------------------

    def _span(self, start: int, end: int) -> Span:
        return Span(self._source, start, end)

    def _wrong(self, message: str, span: Span | None, *notes: str) -> None:
        self._diagnostics.error("FD521", message, span, notes=notes)

    def _unknown(self, name: str, span: Span | None) -> None:
        known = sorted(self._program.predicates)
        hint = did_you_mean(name, known)
        listed = f"the rules ask: {', '.join(known)}" if known else "the rules ask nothing"
        self._diagnostics.error(
            "FD520", f"no predicate is called `{name}`", span, help=hint or listed
        )

    def _about_others(self, predicate: Predicate, asked: Call) -> None:
        params = ", ".join(p.name for p in predicate.params)
        self._wrong(
            f"the arguments of `{predicate.name}` are ({params})",
            asked.span,
            "without arguments an answer is to any question",
        )
