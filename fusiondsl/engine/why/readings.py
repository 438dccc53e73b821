"""The graph as differences are looked for in it: what a call is, and what it nearly is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import fx

from fusiondsl.engine.bindings import Binding
from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.formcheck import FormCheck
from fusiondsl.engine.forms import DirectForm
from fusiondsl.engine.mutation import VALUES, Version
from fusiondsl.engine.recognise import apply_direct
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.view import Call, View
from fusiondsl.engine.why.answer import Cause
from fusiondsl.engine.why.lookups import Beyond, Lookups
from fusiondsl.engine.why.show import model_line, value_text
from fusiondsl.engine.why.spelled import Spellings
from fusiondsl.engine.wide import recogniser_of

_LITERAL = 0.3
_FITS_NOT = 0.4


class TolerantView(View):
    """The normal view that also reads calls with arguments their declarations do not know."""

    def __init__(self, graph: fx.Graph, compiled: Compiled) -> None:
        super().__init__(graph, compiled.bindings)
        self.left_out: dict[fx.Node, dict[str, Any]] = {}
        """By node: the arguments that were left out to read it."""

    def _call_declared(self, node: fx.Node, binding: Binding) -> Call | None:
        found = super()._call_declared(node, binding)
        unknown = {k: v for k, v in node.kwargs.items() if k not in binding.known}
        if found is not None or not unknown or binding.mutated:
            return found
        return self._without(node, binding, unknown)

    def _without(self, node: fx.Node, binding: Binding, unknown: dict[str, Any]) -> Call | None:
        """The call as if the unknown arguments were not there; on a node outside the graph."""
        known = {k: v for k, v in node.kwargs.items() if k in binding.known}
        bare = super()._call_declared(_Bare(node, known), binding)  # type: ignore[arg-type]
        if bare is None:
            return None
        self.left_out[node] = unknown
        results = {
            index: [node if value is bare.node else value for value in values]
            for index, values in bare.results.items()
        }
        return Call(bare.op, bare.args, node, binding, results, bare.buffers)


class _Bare:
    """A node without some of its arguments."""

    def __init__(self, node: fx.Node, kwargs: dict[str, Any]) -> None:
        self.target = node.target
        self.args = node.args
        self.kwargs = kwargs
        self.users = node.users


class Readings:
    """Calls of one graph: exact ones from the recogniser, and those that nearly are of an op."""

    def __init__(self, compiled: Compiled, view: TolerantView, check: FormCheck) -> None:
        self.recogniser = recogniser_of(view, compiled, check)
        self._lookups = Lookups(view, self.recogniser)
        self._spellings = Spellings(compiled, view, self._lookups, self.recogniser)
        self._compiled = compiled
        self._view = view
        self._check = check

    def producers(self, value: Any, result: int, op: str) -> Sequence[Recognised]:
        return self._lookups.producers(value, result, op)

    def consumers(self, value: Any, position: int, op: str) -> Sequence[Recognised]:
        return self._lookups.consumers(value, position, op)

    def behind(self, value: Any) -> Beyond:
        return self._lookups.behind(value)

    def ahead(self, value: Any) -> Beyond:
        return self._lookups.ahead(value)

    def occurs(self, op: str) -> bool:
        return self.recogniser.occurs(op)

    def after_write(
        self, value: Any, position: int, op: str
    ) -> Iterator[tuple[Recognised, Version]]:
        """Calls that read, as argument `position`, what a write has left of a value."""
        if not self._view.mutations.any or not isinstance(value, fx.Node):
            return
        for user in value.users:
            call = self._view.call(user)
            found = None if call is None else self.recogniser.as_op(call, op)
            given = None if found is None else found.args[position]
            if found is not None and isinstance(given, Version) and given.node is value:
                yield found, given

    def noted(self, call: Recognised) -> tuple[Cause, ...]:
        left_out = self._view.left_out
        if not left_out:
            return ()
        return tuple(
            _unknown_argument(call, node, name, value)
            for node in call.nodes
            for name, value in left_out.get(node, {}).items()
        )

    def almost(
        self, value: Any, result: int, op: str
    ) -> list[tuple[Recognised, tuple[Cause, ...], float]]:
        """Calls that would be of `op` but for what is listed, with the cost of that."""
        if not isinstance(value, VALUES):
            return []
        definition = self._view.define(value)
        found: list[tuple[Recognised, tuple[Cause, ...], float]] = []
        call = None if definition is None else definition[0]
        if call is not None:
            for direct in self._compiled.forms.direct.get((call.op, op), ()):
                near = self._nearly_direct(call, direct)
                if near is not None and value in near[0].results.get(result, ()):
                    found.append(near)
        spelled = self._spellings.nearest(value, result, op)
        if spelled is not None:
            found.append(spelled)
        return sorted(found, key=lambda item: item[2])[:1]

    def _nearly_direct(
        self, call: Call, direct: DirectForm
    ) -> tuple[Recognised, tuple[Cause, ...], float] | None:
        read = apply_direct(call, replace(direct, literals=()))
        if read is None:
            return None
        causes = tuple(self._literals(call, direct))
        if causes:
            return read, causes, _LITERAL * len(causes)
        if self._check.direct(direct.form, read):
            return None
        what = f"{call.op} stands for {direct.op} only where the conditions of the form hold"
        cause = Cause(
            "predicate-false",
            f"{what}: they do not here",
            call.node.name,
            direct.form.name,
            span=direct.form.where[0].span if direct.form.where else direct.form.span,
            label=direct.form.where[0].label if direct.form.where else None,
            source=model_line(call.node),
        )
        return read, (cause,), _FITS_NOT

    def _literals(self, call: Call, direct: DirectForm) -> Iterator[Cause]:
        params = self._compiled.program.ops[call.op].call_params
        for place, wanted in direct.literals:
            given = call.args[place]
            if type(given) is type(wanted) and given == wanted:
                continue
            name = params[place].name
            yield Cause(
                "constant",
                f"{name} of {call.op} is {value_text(given)}; it stands for {direct.op} "
                f"only with {value_text(wanted)}",
                call.node.name,
                name,
                value_text(wanted),
                value_text(given),
                span=direct.form.span,
                source=model_line(call.node),
            )


def _unknown_argument(call: Recognised, node: fx.Node, name: str, value: Any) -> Cause:
    return Cause(
        "constant",
        f"{name} is given, which the declaration of {call.op} does not know",
        node.name,
        name,
        None,
        value_text(value),
        source=model_line(node),
    )
