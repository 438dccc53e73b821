"""Rules inside `torch.compile`: for the process, for a block, or for one compiled function."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal, TypeAlias

from torch._inductor import config

from fusiondsl.artifact import is_artifact
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.graph_pass import FusionPass, check_in_process
from fusiondsl.engine.required import RequiredRuleError, check_required
from fusiondsl.engine.settings import Settings
from fusiondsl.integrations.chain import fusions, with_pass, without_pass
from fusiondsl.kept import load_once
from fusiondsl.rules import RuleSet

__all__ = ["RequiredRuleError", "install", "installed", "make_pass", "options", "uninstall"]

Rules: TypeAlias = CompiledRules | RuleSet | FusionPass | str | os.PathLike[str]
"""Compiled rules, rules to compile for no particular target, the path of an artifact, of a rule
file or of a directory of them, or a pass."""
Slot: TypeAlias = Literal["pre", "post"]
"""Before or after Inductor's own passes over the graph of ATen ops."""

_SLOTS = {"pre": "post_grad_custom_pre_pass", "post": "post_grad_custom_post_pass"}

log = logging.getLogger("fusiondsl")


def make_pass(
    rules: Rules,
    *,
    tokens: range | None = None,
    off: Iterable[str] | str = (),
    require: Iterable[str] | str = (),
    dry_run: bool = False,
) -> FusionPass:
    """The rules as a pass, with what the environment variables `FUSIONDSL_*` say as well."""
    given = Settings.of(off, require, dry_run)
    if isinstance(rules, FusionPass):
        if tokens is not None or given != Settings():
            raise TypeError("a pass has its settings already")
        return rules
    compiled = _compiled(rules)
    settings = given | Settings.of_environment(os.environ)
    return FusionPass(compiled.program, compiled.target, tokens=tokens, settings=settings)


def install(rules: Rules, *, slot: Slot = "post", **settings: Any) -> FusionPass:
    """Puts the rules behind whatever is in the slot, for all that the process compiles from now on.

    Where the same rules with the same settings are in the slot already, nothing changes, and their
    pass is returned. Settings are those of `make_pass`.
    """
    fusion = _made(rules, settings)
    return _install(fusion, slot)


def uninstall(fusion: FusionPass) -> None:
    """Takes the pass out again, whatever came before or after it stays.

    Raises `LookupError` where it is in no slot.
    """
    for name in _SLOTS.values():
        if _holds(getattr(config, name), fusion):
            setattr(config, name, without_pass(getattr(config, name), fusion))
            return
    raise LookupError("the pass is not installed")


@contextmanager
def installed(rules: Rules, *, slot: Slot = "post", **settings: Any) -> Iterator[FusionPass]:
    """The rules in the slot inside the block only; a function compiles when it is first called.

    At the end of the block a required rule that has fired in no graph of it is an error
    (`RequiredRuleError`). Settings are those of `make_pass`.
    """
    fusion = _made(rules, settings)
    name = _slot(slot)
    before = getattr(config, name)
    if _holds(before, fusion):
        raise ValueError("the pass is installed already")
    inside = with_pass(before, fusion)
    earlier = len(fusion.reports)
    setattr(config, name, inside)
    try:
        yield fusion
    finally:
        _restore(name, before, inside, fusion)
    check_required(fusion.required, fusion.reports[earlier:])


def options(rules: Rules, *, slot: Slot = "post", **settings: Any) -> dict[str, Any]:
    """For `torch.compile(function, options=...)`: the rules behind what the slot holds now.

    Give it a pass (`make_pass`) to have its reports. Settings are those of `make_pass`.
    """
    fusion = _made(rules, settings)
    name = _slot(slot)
    return {name: with_pass(getattr(config, name), fusion)}


# --- slots -------------------------------------------------------------------------------------


def _slot(slot: str) -> str:
    if slot not in _SLOTS:
        raise ValueError(f"slot is `{slot}`; there are `pre` and `post`")
    return _SLOTS[slot]


def _install(fusion: FusionPass, slot: str) -> FusionPass:
    name = _slot(slot)
    value = getattr(config, name)
    for each in fusions(value):
        if each is fusion or _same(each, fusion):
            return each
    setattr(config, name, with_pass(value, fusion))
    return fusion


def _same(one: FusionPass, other: FusionPass) -> bool:
    return one.settings == other.settings and one.identity() == other.identity()


def _holds(value: Any, fusion: FusionPass) -> bool:
    return any(each is fusion for each in fusions(value))


def _restore(name: str, before: Any, inside: Any, fusion: FusionPass) -> None:
    """What was there; where the block has changed the slot itself, only `fusion` goes."""
    now = getattr(config, name)
    if now is inside:
        setattr(config, name, before)
    elif _holds(now, fusion):
        setattr(config, name, without_pass(now, fusion))
    else:
        log.warning("%s was set inside the block, and is left as it is", name)


def _made(rules: Rules, settings: Mapping[str, Any]) -> FusionPass:
    import_module("torch._inductor.compile_fx")  # decides in which process it compiles
    check_in_process()
    return make_pass(rules, **settings)


def _compiled(rules: CompiledRules | RuleSet | str | os.PathLike[str]) -> CompiledRules:
    if isinstance(rules, CompiledRules):
        return rules
    if isinstance(rules, RuleSet):
        return rules.compile()
    if is_artifact(rules):
        return CompiledRules.load(rules)
    return load_once(os.fspath(rules)).compile()
