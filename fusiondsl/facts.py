"""Facts of a target as text: `env.arch=gfx950`."""

from __future__ import annotations

import re

from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.target import ENV_FACTS, Fact, Target

_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_ARCH = "env.arch"


def parse_fact(text: str) -> tuple[str, Fact]:
    """Name and value of `NAME=VALUE`; raises `ValueError` with what is wrong."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"`{text}` is not NAME=VALUE")
    if name not in ENV_FACTS:
        hint = did_you_mean(name, ENV_FACTS) or f"known: {', '.join(ENV_FACTS)}"
        raise ValueError(f"unknown fact `{name}`; {hint}")
    kind = ENV_FACTS[name]
    if kind == "str":
        return name, value
    if kind == "bool" and value.lower() in _WORDS:
        return name, _WORDS[value.lower()]
    if kind == "int" and re.fullmatch(r"[0-9]{1,18}", value) and int(value) > 0:
        return name, int(value)
    wanted = "true or false" if kind == "bool" else "an integer above 0"
    raise ValueError(f"`{name}` is {wanted}, not `{value}`")


def target_with(facts: dict[str, Fact]) -> Target:
    """A target of these facts; what follows from the architecture is known with it."""
    arch = facts.get(_ARCH)
    others = {name: value for name, value in facts.items() if name != _ARCH}
    return Target(arch=arch if isinstance(arch, str) else None, facts=others)
