"""Every part of the package imports only parts above it, and only those meant to need torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fusiondsl

PACKAGE = Path(fusiondsl.__file__).parent

LAYERS = (
    "lazy",
    "pause",
    "switches",
    "resources",
    "target",
    "diagnostics",
    "facts",
    "dims",
    "syntax",
    "decl",
    "ir",
    "analysis",
    "proof",
    "artifact",
    "stored",
    "aiter",
    "ops",
    "graphs",
    "engine",
    "verify",
    "rules",
    "kept",
    "integrations",
    "demo",
    "pictures",
    "cli",
)
WITHOUT_TORCH = LAYERS[: LAYERS.index("ops")]
ENTRIES = ("__init__", "__main__")
"""What stands for the package as a whole; `__init__` gives out its names late."""


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if layer_of(path) not in ENTRIES)


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all that is imported anywhere in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_part_has_a_layer() -> None:
    assert {layer_of(path) for path in files()} == set(LAYERS)


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_upwards(layer: str) -> None:
    above = {*LAYERS[: LAYERS.index(layer) + 1], "__version__"}
    for path in files():
        if layer_of(path) != layer:
            continue
        parts = [name.split(".") for name in imports(path)]
        used = {part[1] for part in parts if part[0] == "fusiondsl" and len(part) > 1}
        assert used <= above, f"{path.relative_to(PACKAGE)}: {used}"


@pytest.mark.parametrize("layer", WITHOUT_TORCH)
def test_checking_rules_needs_no_torch(layer: str) -> None:
    for path in files():
        if layer_of(path) == layer:
            tops = {name.partition(".")[0] for name in imports(path)}
            assert not tops & {"torch", "sympy"}, path.relative_to(PACKAGE)
