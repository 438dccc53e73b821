"""Rules as `VllmPatternReplacement`s, which a pass of vLLM registers beside its own.

vLLM's `register` takes no check of a match. So the pattern checks: Inductor traces it again with
the tensors of every match, and takes a `RuntimeError` there as no match.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from vllm.compilation.passes.vllm_inductor_pass import DEVICE_TYPE, VllmPatternReplacement
from vllm.config import VllmConfig

from fusiondsl import __version__, ir
from fusiondsl.artifact import identity
from fusiondsl.dims.expr import Spread
from fusiondsl.engine.compile import Compiled, CompiledRule
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.recipe import Inexpressible
from fusiondsl.facts import target_with
from fusiondsl.integrations.vllm.facts import facts_of
from fusiondsl.integrations.vllm.layers import answers_of
from fusiondsl.integrations.vllm.passes import compile_range
from fusiondsl.integrations.vllm.traced import Refused, Spelling
from fusiondsl.ir.strata import admitted_forms
from fusiondsl.ops.context import Context
from fusiondsl.ops.registry import overload
from fusiondsl.ops.scope import Scope
from fusiondsl.ops.scope import sizes as dims
from fusiondsl.rules import RuleSet
from fusiondsl.target import Fact
from fusiondsl.verify.samples import NoSample, choose

_EPSILONS = (1e-5, 1e-6)
_CLASS = "Replacement"
_ROWS = 5
"""Of the tensors a pattern is first traced with."""


class RuleReplacement(VllmPatternReplacement):  # type: ignore[misc]
    """One spelling of one rule. Every object has a class of its own, by which vLLM hashes it."""

    def __init__(self, spelling: Spelling, examples: list[torch.Tensor], count: int) -> None:
        self.spelling = spelling
        self._examples = [(list(e.shape), e.stride(), e.dtype) for e in examples]
        self._buffers = count

    @property
    def rule(self) -> str:
        return self.spelling.rule.name

    @property
    def pattern(self) -> Callable[..., Any]:
        split = len(self.spelling.tensors)

        def pattern(*tensors: torch.Tensor) -> Any:
            spelling = replace(self.spelling, tokens=compile_range())
            return spelling.source(tensors[:split], tensors[split:])

        return _named(pattern, self._parameters())

    @property
    def replacement(self) -> Callable[..., Any]:
        split = len(self.spelling.tensors)

        def replacement(*tensors: torch.Tensor) -> Any:
            spelling = replace(self.spelling, tokens=compile_range())
            return spelling.replacement(tensors[:split])

        return _named(replacement, self._parameters())

    def get_inputs(self) -> list[torch.Tensor]:
        return [
            torch.empty_strided(shape, strides, dtype=dtype, device=DEVICE_TYPE)
            for shape, strides, dtype in self._examples
        ]

    def extra_check(self, match: Any) -> bool:
        """For a `register` that takes one: the conditions of the rule hold for the match."""
        names = self._parameters()[: len(self.spelling.tensors)]
        tensors = [match.kwargs[name].meta["val"] for name in names]
        try:
            replace(self.spelling, tokens=compile_range()).checked(tensors)
        except Refused:
            return False
        return True

    def _parameters(self) -> list[str]:
        buffers = [f"buffer_{index}" for index in range(self._buffers)]
        return [*(param.name for param in self.spelling.tensors), *buffers]


@dataclass(frozen=True)
class LeftOut:
    """A rule, or one of its spellings, that cannot be a pattern of this kind."""

    rule: str
    reason: str


class Replacements(list[RuleReplacement]):
    """The patterns in the order in which they must be registered."""

    left_out: tuple[LeftOut, ...] = ()


def as_pattern_replacements(
    rules: RuleSet | CompiledRules,
    config: VllmConfig,
    *,
    facts: Mapping[str, Fact] | None = None,
) -> Replacements:
    """The rules that can fire on the target which `config` describes, in all spellings by one op.

    `facts` override what vLLM says. What cannot be a pattern is listed in `left_out`.
    """
    program = rules.program
    own = rules.target.known() if isinstance(rules, CompiledRules) else {}
    given = rules.target.answers if isinstance(rules, CompiledRules) else ()
    target = target_with({**facts_of(config), **own, **(facts or {})})
    target = replace(target, answers=answers_of(program, given, config))
    compiled = CompiledRules(program, target).compiled
    content = identity(program, target).hex()
    found, left_out = Replacements(), [LeftOut(i.rule, i.message) for i in compiled.ineligible]
    for rule in compiled.rules:
        for made in _of_rule(rule, compiled, config, content):
            if isinstance(made, LeftOut):
                left_out.append(made)
            else:
                found.append(made)
    found.left_out = tuple(left_out)
    return found


def _of_rule(
    one: CompiledRule, compiled: Compiled, config: VllmConfig, content: str
) -> Iterator[RuleReplacement | LeftOut]:
    rule = one.rule
    reason = _unfit(rule)
    if reason is not None:
        yield LeftOut(rule.name, reason)
        return
    try:
        sizes = choose(rule, Context.of(compiled.program), _one_leading(rule))
    except NoSample as error:
        yield LeftOut(rule.name, f"no example of it can be made: {error}")
        return
    spelled = 0
    last = "no form of its ops is one op of this process"
    for forms in _spellings(rule, compiled):
        for scalars in _scalar_values(rule, compiled, config):
            try:
                made = _replacement(Spelling(compiled, rule, forms, scalars, None), sizes, content)
            except (Refused, Inexpressible) as problem:
                last = str(problem)
                continue
            spelled += 1
            yield made
    if not spelled:
        yield LeftOut(rule.name, last)


def _unfit(rule: ir.Rule) -> str | None:
    if rule.kept:
        return "it keeps matched values, and a pattern writes all that it matches anew"
    if rule.readers:
        return "its condition on readers cannot be asked by a pattern"
    for param in rule.params:
        kind = param.type.kind if isinstance(param.type, ir.ScalarType) else None
        if kind not in (None, "float", "str"):
            return f"`{param.name}` can be anything, and a pattern has one value of it"
    return None


def _spellings(rule: ir.Rule, compiled: Compiled) -> Iterator[dict[str, ir.Form]]:
    """Every choice of one form for each semantic op, of those that are one call of one op."""
    choices: dict[str, list[ir.Form]] = {}
    for call in rule.match:
        decl = compiled.program.ops.get(call.op)
        if decl is not None and decl.forms:
            forms = admitted_forms(rule, call, compiled.program.ops)
            choices[call.op] = [form for form in forms if _is_one_call(form, compiled)]
    for chosen in product(*choices.values()):
        yield dict(zip(choices, chosen, strict=True))


def _is_one_call(form: ir.Form, compiled: Compiled) -> bool:
    if len(form.body) != 1:
        return False
    decl = compiled.program.ops.get(form.body[0].op)
    target = None if decl is None or not decl.extern else overload(decl)
    return target is not None and compiled.bindings.of(target) is not None


def _scalar_values(
    rule: ir.Rule, compiled: Compiled, config: VllmConfig
) -> Iterator[dict[str, Any]]:
    kinds = {p.name: p.type.kind for p in rule.params if isinstance(p.type, ir.ScalarType)}
    group = compiled.target.known().get("env.tp_group")
    text = getattr(config.model_config, "hf_text_config", None)
    own = getattr(text, "rms_norm_eps", None)
    epsilons = dict.fromkeys((*([own] if isinstance(own, float) else []), *_EPSILONS))
    floats = [name for name, kind in kinds.items() if kind == "float"]
    for values in product(epsilons, repeat=len(floats)):
        texts = {name: group for name, kind in kinds.items() if kind == "str"}
        yield {**texts, **dict(zip(floats, values, strict=True))}


def _replacement(spelling: Spelling, sizes: Mapping[str, Any], content: str) -> RuleReplacement:
    with FakeTensorMode():
        tensors = _examples(spelling, sizes)
        buffers = spelling.buffers(tensors)
    key = f"{content} {_text(spelling)} torch {torch.__version__} fusiondsl {__version__}"
    return _class_of(key)(spelling, [*tensors, *buffers], len(buffers))


def _text(spelling: Spelling) -> str:
    forms = ", ".join(f"{op}: {form.name}" for op, form in sorted(spelling.forms.items()))
    return f"{spelling.rule.name} ({forms}) {sorted(spelling.scalars.items())}"


def _one_leading(rule: ir.Rule) -> dict[str, tuple[int, ...]]:
    """Every `name..` that other dimensions follow as one dimension."""
    types = [p.type for p in rule.params if isinstance(p.type, ir.TensorType)]
    spreads = [t.dims[0].name for t in types if t.dims[1:] and isinstance(t.dims[0], Spread)]
    return dict.fromkeys(spreads, (_ROWS,))


def _examples(spelling: Spelling, values: Mapping[str, Any]) -> list[torch.Tensor]:
    scope = Scope(dict(values), Context.of(spelling.compiled.program))
    dtypes = spelling.compiled.dtypes
    tensors: list[torch.Tensor] = []
    for param in spelling.tensors:
        assert isinstance(param.type, ir.TensorType)
        shape = [int(size) for size in dims(param.type.dims, scope)]
        dtype = dtypes.get(param.type.dtype) or scope.lookup(param.type.dtype)
        first = dtype[0] if isinstance(dtype, tuple) else dtype
        if param.type.strides is None:
            tensors.append(torch.empty(shape, dtype=first, device=DEVICE_TYPE))
            continue
        strides = [int(stride) for stride in dims(param.type.strides, scope)]
        tensors.append(torch.empty_strided(shape, strides, dtype=first, device=DEVICE_TYPE))
    return tensors


def _named(function: Callable[..., Any], names: Iterable[str]) -> Callable[..., Any]:
    """Inductor calls the inputs of a pattern by the names of its parameters."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in names]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


# --- classes -------------------------------------------------------------------------------------


def _class_of(key: str) -> type[RuleReplacement]:
    """A class whose source says what its object does.

    vLLM makes the cache key of a pass of the sources of the classes it has registered.
    """
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    name = f"{__name__}_{digest}"
    known = sys.modules.get(name)
    if known is None:
        source = f"class {_CLASS}(RuleReplacement):\n    key = {key!r}\n"
        known = sys.modules[name] = ModuleType(name, "A class that stands for a rule.")
        known.__file__ = f"<fusiondsl {digest}>"
        lines = source.splitlines(keepends=True)
        linecache.cache[known.__file__] = (len(source), None, lines, known.__file__)
        setattr(known, _CLASS, type(_CLASS, (RuleReplacement,), {"__module__": name, "key": key}))
    made: type[RuleReplacement] = getattr(known, _CLASS)
    return made
