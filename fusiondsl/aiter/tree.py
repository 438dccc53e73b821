"""Where AITER lies: the installed package, or a source tree."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from fusiondsl.aiter.source import Unreadable, statements

PACKAGE = "aiter"
DISTRIBUTION = "amd-aiter"


class NoTree(Exception):
    """Why there is no AITER at a place."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing
        """Nothing is installed, rather than something else found."""


@dataclass(frozen=True)
class Tree:
    root: Path
    """The directory of the package `aiter`."""
    version: str | None


def tree_at(path: Path) -> Tree:
    """The package in `path`, which is it or holds it. Raises `NoTree`."""
    try:
        if not path.is_dir():
            raise NoTree(f"`{path}` is no directory")
        within = path / PACKAGE
        roots = [root for root in (within, path) if (root / "__init__.py").is_file()]
    except OSError as error:
        raise NoTree(f"cannot read `{path}`: {error.strerror}") from None
    if not roots:
        raise NoTree(f"`{path}` holds no package `{PACKAGE}`")
    root = next((root for root in roots if _is_amds(root)), None)
    if root is None:
        raise NoTree(_not_amds(roots[0]))
    return Tree(root, _version(root))


def installed_tree() -> Tree:
    """The package that `import aiter` would import. Raises `NoTree`."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError) as error:
        raise NoTree(f"`{PACKAGE}` cannot be looked up: {error}", missing=True) from None
    if spec is None:
        raise NoTree(
            f"AITER is not installed here (`pip install --pre {DISTRIBUTION}`); or name its source "
            "tree: --check-aiter=PATH",
            missing=True,
        )
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    root = next((place for place in places if _is_amds(place)), None)
    if root is None:
        raise NoTree(_not_amds(places[0] if places else Path(spec.origin or PACKAGE)))
    return Tree(root, _version(root) or _installed_version())


def is_installed() -> bool:
    """Would `import aiter` import AMD's package?"""
    try:
        installed_tree()
    except NoTree:
        return False
    return True


def _is_amds(root: Path) -> bool:
    """AMD's package compiles its kernels: no other one of that name has these directories."""
    try:
        return (root / "ops").is_dir() and (root / "jit").is_dir()
    except OSError:
        return False


def _not_amds(root: Path) -> str:
    return (
        f"`{root}` is not AMD's AITER but another package of that name (on PyPI, `{PACKAGE}` is "
        f"about asynchronous iterators; AMD's is `{DISTRIBUTION}`)"
    )


def _version(root: Path) -> str | None:
    """What the file that a build writes says; a plain checkout has none."""
    try:
        found = statements(root / "_version.py")
    except Unreadable:
        return None
    for node in found:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if "__version__" in names and isinstance(node.value.value, str):
                return node.value.value
    return None


def _installed_version() -> str | None:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None
