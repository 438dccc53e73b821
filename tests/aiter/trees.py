"""Small source trees of AITER's shape."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from fusiondsl.aiter.drift import known_signatures
from fusiondsl.aiter.functions import Parameter


def write(root: Path, files: Mapping[str, str]) -> Path:
    """A package `aiter` below `root`, which is returned, with what makes it AMD's."""
    for name, text in {
        "__init__.py": "",
        "jit/core.py": "",
        "ops/__init__.py": "",
        **files,
    }.items():
        file = root / "aiter" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def fitting() -> dict[str, str]:
    """Files with every function the shipped ops call, taking what is known."""
    files: dict[str, str] = {}
    for location, parameters in known_signatures().items():
        module, _, name = location.partition(":")
        file = module.removeprefix("aiter.").replace(".", "/") + ".py"
        files[file] = files.get(file, "fp8_dtype = None\n") + f"\n\n{_stub(name, parameters)}\n"
    return files


def _stub(name: str, parameters: tuple[Parameter, ...]) -> str:
    """Decorated and annotated, as many of them are."""
    positional = [_written(p) for p in parameters if p.by_position]
    named = [_written(p) for p in parameters if not p.by_position]
    given = ", ".join([*positional, *(["*"] if named else []), *named])
    text = f'@compile_ops("module_x", fc_name="{name}")\ndef {name}({given}) -> Tensor: ...'
    ast.parse(text)
    return text


def _written(parameter: Parameter) -> str:
    default = "" if parameter.default is None else f" = {parameter.default}"
    return f"{parameter.name}: Tensor{default}"
