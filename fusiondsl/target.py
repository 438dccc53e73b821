"""What a rule set is compiled for: the facts behind `env.*` and `model.*` in conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

Fact: TypeAlias = int | float | str | bool

ENV_FACTS: dict[str, Literal["int", "str", "bool"]] = {
    "env.arch": "str",
    "env.tp_size": "int",
    "env.tp_group": "str",
    "env.cu_count": "int",
    "env.mx": "bool",
    "env.aiter": "bool",
    "env.aiter_dynamic_hidden": "bool",
    "env.aiter_allreduce_group_quant": "bool",
    "env.vllm": "bool",
    "model.hidden_size": "int",
    "model.intermediate_size": "int",
    "model.itemsize": "int",
    "model.max_tokens": "int",
}
"""Every fact a condition may name, with its kind.

`env.mx`: the chip has MX (fp4 with e8m0 scales) conversion. `env.aiter`: AITER can be imported.
`env.aiter_dynamic_hidden`: AITER's all-reduce has the dynamic-hidden pool (AITER >= 0.1.12).
`env.aiter_allreduce_group_quant`: it has the per-group quant epilogue (AITER >= 0.1.14).
`model.hidden_size`: the widest of target and draft model, in elements; `model.itemsize` in bytes.
"""

MODEL_SIZES: dict[str, str] = {"H": "model.hidden_size"}
MODEL_DTYPE, MODEL_ITEMSIZE = "D", "model.itemsize"
"""What a rule calls, in bounds on `tokens`, the sizes and the dtype that are facts of the model; of
the dtype only its size is one."""

_MX_ARCHS = frozenset({"gfx950", "gfx1250"})


@dataclass(frozen=True)
class Answer:
    """What an integration says to one question of an `extern predicate`."""

    predicate: str
    value: bool
    args: Mapping[str, Fact] | None = None
    """The arguments asked about, dtypes by name; None for whatever is asked. Where the predicate
    has a `layer`, an answer is about one layer, and its name stands here too."""


@dataclass(frozen=True)
class Target:
    """Facts about hardware, process and model. What is not given is unknown, never assumed.

    `facts` adds or overrides any name of `ENV_FACTS`.
    """

    arch: str | None = None
    """GPU architecture as ROCm names it (`gfx942`, `gfx950`), without feature suffixes."""
    tp_size: int | None = None
    tp_group: str | None = None
    """Name of the tensor-parallel group as it appears in graphs (`tp:0`)."""
    facts: MappingProxyType[str, Fact] | dict[str, Fact] = field(default_factory=dict)
    answers: tuple[Answer, ...] = ()
    """To extern predicates, all that there are: what nobody answers is unknown."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.facts) - set(ENV_FACTS))
        if unknown:
            raise KeyError(f"unknown target fact {unknown[0]!r}; known: {', '.join(ENV_FACTS)}")

    def known(self) -> dict[str, Fact]:
        """All known facts by name, sorted."""
        known: dict[str, Fact] = {}
        if self.arch is not None:
            known["env.arch"] = self.arch
            known["env.mx"] = self.arch in _MX_ARCHS
        if self.tp_size is not None:
            known["env.tp_size"] = self.tp_size
        if self.tp_group is not None:
            known["env.tp_group"] = self.tp_group
        known.update(self.facts)
        return dict(sorted(known.items()))
