"""Contracts of rule files and of `--expect`, as subcommands show them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fusiondsl.ir.contracts import Expect, file_of

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console
    from fusiondsl.cli.inputs import Rules
    from fusiondsl.diagnostics.diagnostic import Diagnostic
    from fusiondsl.engine.why import Audit, Failure
    from fusiondsl.graphs import ReadGraph
    from fusiondsl.target import Fact
    from fusiondsl.verify.contracts import Held


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


# --- `test` --------------------------------------------------------------------------------------


def show_held(console: Console, held: Sequence[Held]) -> None:
    """Every contract with its count, then how many hold."""
    if held:
        console.print(console.paint("bold", "contracts"))
    shown: list[Diagnostic] = []
    for one in held:
        console.diagnostics(item for item in one.diagnostics if item not in shown)
        shown += one.diagnostics
        style, word = ("good", "ok     ") if one.passed else ("bad", "FAILED ")
        console.print(f"  {console.paint(style, word)} {_title(one.expect)} ({one.expect.span})")
        if not one.passed:
            found = "" if one.found is None else f"{counted(one.found, 'site')}; "
            console.print(f"          {found}{one.message}")


def summarise_held(console: Console, held: Sequence[Held]) -> None:
    passed = sum(one.passed for one in held)
    if held:
        counts = f"{passed} passed, {len(held) - passed} failed"
        console.print(f"{counted(len(held), 'contract')}: {counts}")
    console.add(contracts=[_held_data(one) for one in held])


def _held_data(held: Held) -> dict[str, Any]:
    expect = held.expect
    return {
        "rule": expect.rule,
        "graph": expect.graph,
        "given": dict(_given(expect)),
        "wanted": expect.sites,
        "found": held.found,
        "passed": held.passed,
        "message": held.message,
        "at": None if expect.span is None else str(expect.span),
    }


def _title(expect: Expect) -> str:
    return f"{expect.rule} == {expect.sites} in {expect.graph}{_circumstances(expect)}"


def _circumstances(expect: Expect) -> str:
    given = [f"{name} = {_value(value)}" for name, value in _given(expect)]
    return f" with {', '.join(given)}" if given else ""


def _given(expect: Expect) -> Iterator[tuple[str, Fact]]:
    yield from expect.given
    if expect.tokens is not None:
        low, high = expect.tokens
        yield "tokens", low if low == high else f"{low}:{high}"


def _value(value: Fact) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- `audit` -------------------------------------------------------------------------------------


class OwnContracts:
    """The contracts of the rule files about the graphs that are audited."""

    def __init__(
        self, rules: Rules, name: str, tokens: range | None, found: list[tuple[int, ReadGraph]]
    ) -> None:
        self._rules = rules
        self._tokens = tokens
        self._name = name
        self._found = found
        self.failures: list[tuple[str, Failure]] = []
        self.unchecked: list[Expect] = []
        self._about = list(self._about_this_file())

    @property
    def are_there(self) -> bool:
        return bool(self._about)

    def check(self, console: Console, audits: dict[int, Audit]) -> None:
        """Says whether they hold; those for other circumstances are named as such."""
        from fusiondsl.engine.why.contracts import broken

        held = [expect for expect in self._about if self._is_asked(expect)]
        for expect in held:
            mine = [audits[number] for number, _ in self._graphs(expect)]
            self.failures += [(expect.graph, failure) for failure in broken(expect, mine)]
        if held:
            verdict(console, "contracts of the rules", [f for _, f in self.failures])
        self.unchecked = [expect for expect in self._about if expect not in held]
        for expect in self.unchecked:
            console.print(f"not checked: {_title(expect)} ({expect.span})")

    def _about_this_file(self) -> Iterator[Expect]:
        # `os.path`, because `Path.resolve` raises where links go in circles.
        file = os.path.realpath(file_of(self._name))
        for expect in self._rules.program.expects:
            if os.path.realpath(file_of(expect.path)) == file:
                yield expect

    def _is_asked(self, expect: Expect) -> bool:
        """Are the graphs among those read, and is the contract about this target?"""
        from fusiondsl.verify.contracts import target_of, tokens_of

        if self._is_one and _number(expect.path) != _number(self._name):
            return False
        target = self._rules.target
        wanted = target_of(expect, self._rules.program, target)
        answered = all(answer in target.answers for answer in wanted.answers)
        same = answered and wanted.known() == target.known()
        return same and tokens_of(expect, self._tokens) == self._tokens

    @property
    def _is_one(self) -> bool:
        """Only one graph of the file is read."""
        return bool(_number(self._name))

    def _graphs(self, expect: Expect) -> list[tuple[int, ReadGraph]]:
        from fusiondsl.graphs.named import select

        if self._is_one:
            return self._found
        return select(expect.path, file_of(expect.path), self._found)


def _number(name: str) -> str:
    """`#3` of `FILE#3`."""
    return name[len(file_of(name)) :]


def unchecked_data(expects: Iterable[Expect]) -> list[dict[str, Any]]:
    return [
        {
            "rule": expect.rule,
            "graph": expect.graph,
            "given": dict(_given(expect)),
            "wanted": expect.sites,
            "span": str(expect.span),
        }
        for expect in expects
    ]


def verdict(console: Console, title: str, failures: Sequence[Failure]) -> None:
    """Each count that is another one as a line taken away and a line put in."""
    many = title.endswith("s")
    if not failures:
        console.print(f"{title}: {console.paint('good', 'hold' if many else 'holds')}")
        return
    console.print(f"{title}: {console.paint('bad', 'do not hold' if many else 'does not hold')}")
    for failure in failures:
        wanted = f"{failure.rule}: {_told(failure, failure.wanted)} ({failure.span})"
        console.print(console.paint("bad", f"  - {wanted}"))
        found = f"{failure.rule}: {_told(failure, failure.number)}"
        console.print(console.paint("good", f"  + {found}"))


def _told(failure: Failure, number: int) -> str:
    return counted(number, "site") if failure.of == "sites" else f"{failure.of} {number}"


def failure_data(failures: Iterable[tuple[str, Failure]]) -> list[dict[str, Any]]:
    return [
        {
            "graph": graph,
            "rule": failure.rule,
            "of": failure.of,
            "wanted": failure.wanted,
            "found": failure.number,
            "span": str(failure.span),
        }
        for graph, failure in failures
    ]
