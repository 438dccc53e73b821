"""What a user says about the rules in vLLM, by `FUSIONDSL_*` variables or as arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.engine.settings import DRY_RUN, OFF, REQUIRE, chosen, listed
from fusiondsl.facts import parse_fact
from fusiondsl.integrations.vllm.plugin import RULES
from fusiondsl.switches import SWITCHES
from fusiondsl.target import Fact

AFTER, BEFORE = "after", "before"

_SHIPPED = "fusiondsl"


@dataclass(frozen=True)
class Settings:
    """What decides what is compiled is part of the cache key, by way of rules and facts."""

    rules: tuple[str, ...] = ()
    """Rule files, directories or one artifact."""
    facts: dict[str, Fact] = field(default_factory=dict)
    """Facts of the target that override what vLLM says."""
    off: tuple[str, ...] = ()
    """Rules that are left out; names may be patterns, as `*_mxfp4*`."""
    require: tuple[str, ...] = ()
    """Rules that must fire somewhere, or the engine does not start."""
    strict: bool = False
    """All rules that the target allows must."""
    dry_run: bool = False
    """Report what would be rewritten, and rewrite nothing."""
    place: str = AFTER
    """`after` or `before` vLLM's own fusion passes."""

    def __post_init__(self) -> None:
        if self.place not in (AFTER, BEFORE):
            raise ValueError(f"`{self.place}` is neither `{AFTER}` nor `{BEFORE}`")


def settings_of(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that the variables give. Raises `FusionError` for a value that cannot be."""
    diagnostics = Diagnostics()
    given: dict[str, Any] = {}
    for variable, (name, read) in _VARIABLES.items():
        text = environment.get(variable)
        if text is None:
            continue
        try:
            given[name] = read(text)
        except _Wrong as problem:
            span = Span(Source(variable, text), problem.start, problem.end)
            diagnostics.error("FD720", problem.message, span, help=problem.help)
    if diagnostics.has_errors:
        raise FusionError(diagnostics, 2)
    return Settings(**given)


def split_paths(text: str) -> tuple[str, ...]:
    """Paths between `:`; that of `fusiondsl:rocm_aiter` is part of a path."""
    paths: list[str] = []
    for part in text.split(os.pathsep):
        if paths and paths[-1] == _SHIPPED:
            paths[-1] = f"{_SHIPPED}:{part}"
        elif part:
            paths.append(part)
    return tuple(paths)


def check_rule_names(settings: Settings, rules: Iterable[str]) -> None:
    """Every rule that a setting names is there."""
    names = tuple(rules)
    diagnostics = Diagnostics()
    for setting in ("off", "require"):
        try:
            chosen(getattr(settings, setting), names)
        except ValueError as problem:
            diagnostics.error("FD720", f"`{setting}`: {problem}", None)
    if diagnostics.has_errors:
        raise FusionError(diagnostics, 2)


class _Wrong(ValueError):
    def __init__(self, message: str, start: int, end: int, help: str | None = None) -> None:
        super().__init__(message)
        self.message, self.start, self.end, self.help = message, start, end, help


def _facts(text: str) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    start = 0
    for part in text.split(","):
        if part.strip():
            try:
                name, value = parse_fact(part.strip())
            except ValueError as problem:
                raise _Wrong(str(problem), start, start + len(part)) from None
            facts[name] = value
        start += len(part) + 1
    return facts


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word not in SWITCHES:
        raise _Wrong(f"`{text}` is neither 1 nor 0", 0, len(text))
    return SWITCHES[word]


def _place(text: str) -> str:
    if text not in (AFTER, BEFORE):
        message = f"`{text}` is neither `{AFTER}` nor `{BEFORE}`"
        raise _Wrong(message, 0, len(text), "the place is that among vLLM's own fusion passes")
    return text


_VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    RULES: ("rules", split_paths),
    "FUSIONDSL_FACTS": ("facts", _facts),
    OFF: ("off", listed),
    REQUIRE: ("require", listed),
    "FUSIONDSL_STRICT": ("strict", _switch),
    DRY_RUN: ("dry_run", _switch),
    "FUSIONDSL_PLACE": ("place", _place),
}
