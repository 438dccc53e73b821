"""Facts about a model from its `config.json`, without vLLM or a GPU."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from fusiondsl.decl.dtypes import DTYPES
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.integrations.vllm.outlook import Engine, keys_of
from fusiondsl.target import Fact

_FILE = "config.json"
_SPECULATORS = "speculators_config"
_MOST_SHOWN = 40
"""Characters of a value."""
_ACTIVATIONS = ("f64", "f32", "f16", "bf16")
_SHORT = {
    **{name: name for name in _ACTIVATIONS},
    **{DTYPES[name][0]: name for name in _ACTIVATIONS},
    "float": "f32",
    "half": "f16",
}


@dataclass(frozen=True)
class Model:
    """The configuration of a model, and the text it was read from."""

    config: dict[str, Any]
    source: Source

    def place(self, key: str) -> Span | None:
        """Where the value of a key stands; None where that is not certain."""
        found = list(re.finditer(rf'"{key}"\s*:\s*("[^"]*"|[^\s,}}\]]+)', self.source.text))
        return Span(self.source, *found[0].span(1)) if len(found) == 1 else None


def read_model(path: str | Path) -> Model:
    """The configuration in a file, or in `config.json` of a directory."""
    # `os.path`, because only it answers for names that are too long.
    given = Path(path)
    file = given / _FILE if os.path.isdir(given) else given  # noqa: PTH112
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _refusal(f"cannot read the model's configuration `{file}`: {reason}") from None
    source = Source(str(file), text)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        at = min(error.pos, max(len(text) - 1, 0))
        span = Span(source, at, at + 1) if text else None
        raise _refusal(f"`{file}` is no JSON: {error.msg}", span) from None
    except (ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        raise _refusal(
            f"`{file}` is {'nested too deeply' if deep else f'refused: {error}'}"
        ) from None
    if not isinstance(found, dict):
        raise _refusal(f"`{file}` is no configuration of a model: it is no object")
    return Model(found, source)


def check_model(model: Model, ranks: int) -> None:
    """Raises `FusionError` for what no engine with so many ranks can serve."""
    diagnostics = Diagnostics()
    text = _text(model.config)
    for key, wrong in _wrong(model.config, text, ranks):
        diagnostics.error("FD726", wrong, model.place(key), notes=[f"in `{model.source.name}`"])
    if diagnostics.has_errors:
        raise FusionError(diagnostics, 2)


def _wrong(
    config: Mapping[str, Any], text: Mapping[str, Any], ranks: int
) -> Iterator[tuple[str, str]]:
    """Keys, with what is wrong with their values."""
    if config.get(_SPECULATORS) is not None:
        yield _SPECULATORS, f"`{_SPECULATORS}` makes it a draft, for which vLLM loads another model"
    if not isinstance(config.get("text_config", {}), Mapping):
        yield "text_config", "`text_config` is no object"
    names = config.get("architectures")
    if names is not None and not _are_names(names):
        yield "architectures", "`architectures` is no list of names"
    for key in ("hidden_size", "num_attention_heads"):
        if text.get(key) is not None and not _is_size(text[key]):
            yield key, f"`{key}` is {_shown(text[key])}, which is no size"
    key, dtype = _dtype(config)
    if dtype is not None and short_dtype(dtype) is None:
        yield key, f"`{key}` is {_shown(dtype)}, which is no dtype of activations"
    heads = text.get("num_attention_heads")
    if _is_size(heads) and heads % ranks:
        shown = _shown(heads)
        yield "num_attention_heads", f"{shown} attention heads cannot be split over {ranks} ranks"


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and value > 0


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def facts_of_model(
    config: Mapping[str, Any], dtype: str | None = None, draft: Mapping[str, Any] | None = None
) -> dict[str, Fact]:
    """The sizes that rules ask for; `dtype` overrides the configuration's."""
    text = _text(config)
    widths = [_hidden_size(one) for one in (config, draft) if one is not None]
    found = {
        "model.hidden_size": None if None in widths else max(filter(None, widths)),
        "model.intermediate_size": text.get("intermediate_size"),
        "model.itemsize": DTYPES[served_dtypes(config, dtype)[0]][1],
    }
    return {fact: value for fact, value in found.items() if _is_size(value)}


def engine_of_model(
    config: Mapping[str, Any],
    facts: Mapping[str, Fact],
    dtype: str | None = None,
    *,
    draft: Mapping[str, Any] | None = None,
    groups: int = 1,
) -> Engine:
    """The engine of vLLM that serves this model, and a draft model as it is.

    There are so many `groups` of tensor-parallel ranks. `facts` are those of the target; an empty
    `config` is one that is not known.
    """
    ranks, aiter = facts.get("env.tp_size"), facts.get("env.aiter")
    models = [config] if draft is None else [config, draft]
    named = [tuple(one.get("architectures") or ()) for one in models]
    return Engine(
        architectures=tuple(name for names in named for name in names) if all(named) else (),
        keys=frozenset().union(*map(keys_of, models)),
        hidden_sizes=_hidden_sizes(models, facts.get("model.hidden_size")),
        dtypes=served_dtypes(config, dtype),
        ranks=ranks * groups if isinstance(ranks, int) else None,
        quantised=any(not one or _section(one) is not None for one in models),
        aiter=aiter if isinstance(aiter, bool) else None,
    )


def _hidden_sizes(models: Sequence[Mapping[str, Any]], known: Fact | None) -> frozenset[int]:
    """Of all models; `known` is that of the only one, or of the widest."""
    if len(models) == 1:
        return frozenset({known} if isinstance(known, int) else ())
    widths = [_hidden_size(one) for one in models]
    return frozenset(() if None in widths else filter(None, widths))


def _hidden_size(config: Mapping[str, Any]) -> int | None:
    found = _text(config).get("hidden_size")
    return found if _is_size(found) else None


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part about the language model."""
    found = config.get("text_config", config)
    return found if isinstance(found, Mapping) else config


def served_dtypes(config: Mapping[str, Any], dtype: str | None = None) -> tuple[str, ...]:
    """What activations may be: vLLM serves a model of 32 bits in 16, if `dtype` does not forbid."""
    name = short_dtype(_dtype(config)[1] if dtype is None else dtype)
    if name is None or (dtype is None and name == "f32"):
        return ("bf16", "f16")
    return (name,)


def _dtype(config: Mapping[str, Any]) -> tuple[str, object]:
    """The key that says it, and what it says; None where none does."""
    text = _text(config)
    said = ((part, key) for part in (text, config) for key in ("torch_dtype", "dtype"))
    return next(((key, part[key]) for part, key in said if part.get(key)), ("torch_dtype", None))


def _section(config: Mapping[str, Any]) -> object:
    """What it says of quantisation."""
    found = config.get("quantization_config")
    return found if found is not None else _text(config).get("quantization_config")


def itemsize_of(dtype: object) -> int | None:
    """Bytes of a dtype, called as torch or as rule files call it."""
    name = short_dtype(dtype)
    return None if name is None else DTYPES[name][1]


def short_dtype(dtype: object) -> str | None:
    """A dtype of activations as rule files call it; None for any other."""
    return _SHORT.get(str(dtype).removeprefix("torch."))


def _refusal(message: str, span: Span | None = None) -> FusionError:
    diagnostics = Diagnostics()
    diagnostics.error(
        "FD724", message, span, help="give a directory with a `config.json`, or such a file"
    )
    return FusionError(diagnostics, 2)
