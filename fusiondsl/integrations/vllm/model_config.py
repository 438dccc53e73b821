"""Facts about a model from its `config.json`, without vLLM or a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusiondsl.decl.dtypes import DTYPES
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.target import Fact

_FILE = "config.json"
_ITEMSIZES = {"float64": 8, "float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}


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
    text = config.get("text_config", config)
    name = dtype or text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype")
    found = {
        "model.hidden_size": text.get("hidden_size"),
        "model.intermediate_size": text.get("intermediate_size"),
        "model.itemsize": itemsize_of(name),
    }
    return {fact: value for fact, value in found.items() if isinstance(value, int)}


def itemsize_of(dtype: object) -> int | None:
    """Bytes of a dtype, called as torch or as rule files call it."""
    text = str(dtype).removeprefix("torch.")
    for name, (attribute, *_) in DTYPES.items():
        if text in (name, attribute) and attribute in _ITEMSIZES:
            return _ITEMSIZES[attribute]
    return _ITEMSIZES.get(text)


def _refusal(message: str) -> FusionError:
    diagnostics = Diagnostics()
    diagnostics.error(
        "FD724", message, None, help="give a directory with a `config.json`, or such a file"
    )
    return FusionError(diagnostics, 2)
