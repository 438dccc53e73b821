"""Facts about a model from its `config.json`, without vLLM or a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusiondsl.decl.dtypes import DTYPES
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.integrations.vllm.outlook import Engine, keys_of
from fusiondsl.target import Fact

_FILE = "config.json"
_ACTIVATIONS = ("f64", "f32", "f16", "bf16")
_SHORT = {
    **{name: name for name in _ACTIVATIONS},
    **{DTYPES[name][0]: name for name in _ACTIVATIONS},
    "float": "f32",
    "half": "f16",
}


def read_model(path: str | Path) -> dict[str, Any]:
    """The configuration in a file, or in `config.json` of a directory."""
    given = Path(path)
    file = given / _FILE if given.is_dir() else given
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _refusal(
            f"cannot read the model's configuration `{file}`: {error.strerror}"
        ) from None
    except ValueError as error:
        raise _refusal(f"`{file}` is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise _refusal(f"`{file}` is no configuration of a model: it is no object")
    return found


def facts_of_model(config: Mapping[str, Any], dtype: str | None = None) -> dict[str, Fact]:
    """The sizes that rules ask for; `dtype` overrides the configuration's."""
    text = _text(config)
    found = {
        "model.hidden_size": text.get("hidden_size"),
        "model.intermediate_size": text.get("intermediate_size"),
        "model.itemsize": DTYPES[served_dtypes(config, dtype)[0]][1],
    }
    return {fact: value for fact, value in found.items() if type(value) is int and value > 0}


def engine_of_model(
    config: Mapping[str, Any], facts: Mapping[str, Fact], dtype: str | None = None
) -> Engine:
    """The engine of vLLM that serves this model alone, on the ranks of one tensor-parallel group.

    `facts` are those of the target; an empty `config` is one that is not known.
    """
    names = config.get("architectures")
    named = isinstance(names, list) and all(isinstance(name, str) for name in names)
    ranks, hidden = facts.get("env.tp_size"), facts.get("model.hidden_size")
    aiter = facts.get("env.aiter")
    return Engine(
        architectures=tuple(names) if isinstance(names, list) and named else (),
        keys=keys_of(config),
        hidden_sizes=frozenset({hidden} if isinstance(hidden, int) else ()),
        dtypes=served_dtypes(config, dtype),
        ranks=ranks if isinstance(ranks, int) else None,
        quantised=not config or _section(config) is not None,
        aiter=aiter if isinstance(aiter, bool) else None,
    )


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part about the language model."""
    found = config.get("text_config", config)
    return found if isinstance(found, Mapping) else config


def served_dtypes(config: Mapping[str, Any], dtype: str | None = None) -> tuple[str, ...]:
    """What activations may be: vLLM serves a model of 32 bits in 16, if `dtype` does not forbid."""
    text = _text(config)
    own = short_dtype(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype"))
    name = own if dtype is None else short_dtype(dtype)
    if name is None or (dtype is None and name == "f32"):
        return ("bf16", "f16")
    return (name,)


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


def _refusal(message: str) -> FusionError:
    diagnostics = Diagnostics()
    diagnostics.error(
        "FD724", message, None, help="give a directory with a `config.json`, or such a file"
    )
    return FusionError(diagnostics, 2)
