"""Finds a function by module and name, and what it takes."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fusiondsl.aiter.source import MAX_BYTES, Unreadable, statements
from fusiondsl.aiter.tree import PACKAGE, Tree

MAX_IMPORTS = 16
"""Modules a name is followed through."""
MAX_SEARCHED = 256 << 20
"""Bytes looked into for a function that has moved; all of AITER's Python has a tenth of that."""
_MOVED_MODULES = "_BACKWARD_COMPAT_MAP"
"""The dictionary in which a package of AITER keeps old names of its modules."""

_Def = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Parameter:
    name: str
    default: str | None
    """As it is written; None where there is none."""
    by_position: bool = True
    by_name: bool = True


@dataclass(frozen=True)
class Function:
    """One definition of a function."""

    name: str
    file: Path
    line: int
    parameters: tuple[Parameter, ...]
    any_positional: bool = False
    """It has `*args`."""
    any_keyword: bool = False
    """It has `**kwargs`."""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


class NotFound(Exception):
    """Why a function cannot be found; `unreadable` where it may be there all the same."""

    def __init__(self, message: str, *, unreadable: bool = False) -> None:
        super().__init__(message)
        self.unreadable = unreadable


def find_function(tree: Tree, module: str, name: str) -> tuple[Function, ...]:
    """Its definitions, of which there are several where they depend on something. Raises NotFound.

    `name` is followed through imports and plain assignments.
    """
    return _Search(tree).find(module, name)


def signature(text: str) -> tuple[Parameter, ...]:
    """The parameters in `(x, *, y=1)`."""
    (node,) = ast.parse(f"def f{text}: ...").body
    assert isinstance(node, ast.FunctionDef)
    return _parameters(node.args)


class _Search:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._seen: set[tuple[str, str]] = set()

    def find(self, module: str, name: str) -> tuple[Function, ...]:
        if (module, name) in self._seen or len(self._seen) == MAX_IMPORTS:
            raise NotFound(f"`{name}` is imported in a circle", unreadable=True)
        self._seen.add((module, name))
        file = self._file(module)
        try:
            body = statements(file)
        except Unreadable as error:
            raise NotFound(f"cannot read {file}: {error}", unreadable=True) from None
        defined = tuple(_function(node, file) for node in body if _defines(node, name))
        return defined or self._elsewhere(module, file, name, body)

    def _elsewhere(
        self, module: str, file: Path, name: str, body: Iterable[ast.stmt]
    ) -> tuple[Function, ...]:
        """What the module has under the name without defining it."""
        stars: list[str] = []
        for node in body:
            if isinstance(node, ast.ImportFrom):
                origin = _origin(module, file, node)
                for alias in node.names:
                    if alias.name == "*":
                        stars.append(origin)
                    elif (alias.asname or alias.name) == name:
                        return self._imported(origin, alias.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.ClassDef) and _binds(node, name):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                    return self.find(module, node.value.id)
                where = f"{file}:{node.lineno}"
                raise NotFound(f"`{name}` is no plain function at {where}", unreadable=True)
        return self._starred(stars, file, name)

    def _starred(self, stars: Iterable[str], file: Path, name: str) -> tuple[Function, ...]:
        """The function out of `from ... import *`."""
        unknown: NotFound | None = None
        for origin in stars:
            try:
                return self._imported(origin, name)
            except NotFound as error:
                unknown = error if error.unreadable else unknown
        raise unknown or NotFound(f"{file} has no function `{name}`")

    def _imported(self, origin: str, name: str) -> tuple[Function, ...]:
        if origin.partition(".")[0] != PACKAGE:
            raise NotFound(f"`{name}` may come from `{origin}`", unreadable=True)
        return self.find(origin, name)

    def _file(self, module: str) -> Path:
        parts = module.split(".")
        if parts[0] != PACKAGE or not all(part.isidentifier() for part in parts):
            raise NotFound(f"`{module}` is no module of {PACKAGE}")
        file = self._module(parts)
        if file is None:
            raise NotFound(f"there is no module `{module}`")
        return file

    def _module(self, parts: list[str]) -> Path | None:
        place = self._tree.root.joinpath(*parts[1:])
        package, single = place / "__init__.py", place.parent / f"{place.name}.py"
        if _is_file(package):
            return package
        if len(parts) > 1 and _is_file(single):
            return single
        return self._renamed(parts)

    def _renamed(self, parts: list[str]) -> Path | None:
        """The module that a package above it keeps under an old name."""
        for end in range(len(parts) - 1, 0, -1):
            package = self._tree.root.joinpath(*parts[1:end]) / "__init__.py"
            new = _moved_modules(package).get(".".join(parts[end:]))
            if new is not None and new.split(".") != parts[end:]:
                place = self._tree.root.joinpath(*parts[1:end], *new.split("."))
                found = (place / "__init__.py", place.parent / f"{place.name}.py")
                return next((file for file in found if _is_file(file)), None)
        return None


def find_by_name(tree: Tree, name: str) -> str | None:
    """A place where some module defines the function, for what has moved."""
    wanted = re.compile(rb"^(?:async )?def " + re.escape(name).encode() + rb"\(", re.MULTILINE)
    left = MAX_SEARCHED
    for file in _files(tree.root):
        try:
            text = file.read_bytes() if file.is_file() and file.stat().st_size < MAX_BYTES else b""
        except OSError:
            continue
        found = wanted.search(text)
        if found is not None:
            line = text.count(b"\n", 0, found.start()) + 1
            return f"{file}:{line}"
        left -= len(text) + 1
        if left < 0:
            break
    return None


def _files(root: Path) -> Iterator[Path]:
    for directory, subdirectories, names in os.walk(root):
        subdirectories.sort()
        yield from (Path(directory) / name for name in sorted(names) if name.endswith(".py"))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


# --- syntax ------------------------------------------------------------------------------------


def _defines(node: ast.stmt, name: str) -> bool:
    if not isinstance(node, _Def) or node.name != name:
        return False
    return not any(_last(decorator) == "overload" for decorator in node.decorator_list)


def _last(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _binds(node: ast.Assign | ast.AnnAssign | ast.ClassDef, name: str) -> bool:
    if isinstance(node, ast.ClassDef):
        return node.name == name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _origin(module: str, file: Path, node: ast.ImportFrom) -> str:
    """The module that `from ... import` names, dots and all."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    up = node.level - 1 if file.name == "__init__.py" else node.level
    above = parts[: max(len(parts) - up, 0)]
    return ".".join([*above, *([node.module] if node.module else [])])


def _function(node: ast.stmt, file: Path) -> Function:
    assert isinstance(node, _Def)
    given = node.args
    return Function(
        node.name,
        file,
        node.lineno,
        _parameters(given),
        given.vararg is not None,
        given.kwarg is not None,
    )


def _parameters(given: ast.arguments) -> tuple[Parameter, ...]:
    positional = [*given.posonlyargs, *given.args]
    without = len(positional) - len(given.defaults)
    defaults: list[ast.expr | None] = [None] * without + list(given.defaults)
    named = len(given.posonlyargs)
    return (
        *(
            Parameter(each.arg, _written(default), by_name=place >= named)
            for place, (each, default) in enumerate(zip(positional, defaults, strict=True))
        ),
        *(
            Parameter(each.arg, _written(default), by_position=False)
            for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        ),
    )


def _written(default: ast.expr | None) -> str | None:
    if default is None:
        return None
    try:
        return ast.unparse(default)
    except RecursionError:
        return "..."


def _moved_modules(package: Path) -> Mapping[str, str]:
    try:
        body = statements(package)
    except Unreadable:
        return {}
    assigned = (node for node in body if isinstance(node, ast.Assign))
    values = [node.value for node in assigned if _binds(node, _MOVED_MODULES)]
    return {old: new for node in values if isinstance(node, ast.Dict) for old, new in _texts(node)}


def _texts(node: ast.Dict) -> Iterator[tuple[str, str]]:
    """The entries that map a text to a dotted name."""
    for key, value in zip(node.keys, node.values, strict=True):
        old, new = _text(key), _text(value)
        if old is not None and new is not None and all(map(str.isidentifier, new.split("."))):
            yield old, new


def _text(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None
