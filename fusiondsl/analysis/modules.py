"""Which files a run reads: paths and directories given, and what they import."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.resources import SHIPPED, patterns_root
from fusiondsl.syntax import SUFFIXES, ast, parse, parse_file
from fusiondsl.syntax.files import directory_files


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModule:
    """One parsed file. `reachable` holds the keys of the files whose definitions it sees."""

    key: str
    """The resolved path: one file is one module however it is reached."""
    name: str
    """How messages call it."""
    tree: ast.Module
    folder: Path
    """What paths in the file are relative to."""
    reachable: set[str] = field(default_factory=set)


class Loader:
    """Reads files once each, follows imports, reports what is missing or circular."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self._modules: dict[str, LoadedModule] = {}
        self._broken: set[str] = set()
        self._edges: dict[str, list[tuple[str, Span]]] = {}
        self._pending: list[tuple[Path, str]] = []
        self.files: dict[Path, str] = {}
        """The files that were opened, as they were named, each with the key of its module."""
        self.directories: dict[Path, list[Path]] = {}
        """The directories that were listed, with the rule files below them."""

    def add(self, path: Path) -> None:
        """A file, or a directory of files."""
        if not _is_directory(path):
            self._read(path, str(path))
        else:
            self._add_directory(path)
        self._drain()

    def _add_directory(self, path: Path) -> None:
        files = self._list(path)
        if not files:
            self.diagnostics.error("FD001", f"there are no rule files in `{path}`", None)
        for file in files:
            self._read(file, str(file))

    def _list(self, path: Path) -> list[Path]:
        return self.directories.setdefault(path, directory_files(path))

    def texts(self) -> dict[str, str]:
        """What stands in each of the files, by key."""
        return {key: module.tree.source.text for key, module in self._modules.items()}

    def add_source(self, source: Source) -> None:
        """A text that is no file; its imports are relative to the working directory."""
        tree = parse(source, self.diagnostics)
        self._enter(LoadedModule(source.name, source.name, tree, Path.cwd()))
        self._drain()

    def finish(self) -> list[LoadedModule]:
        """All modules, by name; order of reading does not matter."""
        self._report_cycles()
        for key, module in self._modules.items():
            module.reachable.update(self._reach(key))
        return sorted(self._modules.values(), key=lambda m: (m.name, m.key))

    def _drain(self) -> None:
        # a work list, because a chain of imports may be longer than the recursion limit
        while self._pending:
            self._read(*self._pending.pop())

    def _read(self, path: Path, name: str) -> None:
        key = self.files[path] = os.path.realpath(path)
        if key in self._modules or key in self._broken:
            return
        tree = parse_file(path, self.diagnostics)
        if tree is None:
            self._broken.add(key)
            return
        self._enter(LoadedModule(key, name, tree, path.parent))

    def _enter(self, module: LoadedModule) -> None:
        self._modules[module.key] = module
        edges = self._edges.setdefault(module.key, [])
        for item in module.tree.items:
            if isinstance(item, ast.Import):
                self._follow(item, module.folder, edges)

    def _follow(
        self,
        item: ast.Import,
        folder: Path,
        edges: list[tuple[str, Span]],
    ) -> None:
        path = _resolve(item.path, folder)
        if path is None:
            self.diagnostics.error(
                "FD102",
                f'cannot import "{item.path}"',
                item.span,
                notes=["an import is relative to the file, or starts with `fusiondsl:`"],
            )
            return
        directory = _is_directory(path)
        readable = directory or (path.suffix in SUFFIXES and _exists(path))
        if not readable:
            self.diagnostics.error(
                "FD102",
                f'there is no rule file "{item.path}"',
                item.span,
                help=_nearby(path),
            )
            return
        for file in self._list(path) if directory else [path]:
            key = os.path.realpath(file)
            if any(key == other for other, _ in edges):
                self.diagnostics.warning("FD105", f'"{item.path}" is imported twice', item.span)
                continue
            edges.append((key, item.span))
            self._pending.append((file, _display(file, item.path)))

    def _report_cycles(self) -> None:
        done: set[str] = set()
        for key in sorted(self._edges):
            self._search(key, done)

    def _search(self, start: str, done: set[str]) -> None:
        """Depth first without recursion: a chain of imports may be long."""
        if start in done:
            return
        path: list[str] = [start]
        on_path = {start}
        pending = [iter(self._edges.get(start, ()))]
        while path:
            step = next(pending[-1], None)
            if step is None:
                pending.pop()
                done.add(path[-1])
                on_path.discard(path.pop())
                continue
            key, span = step
            if key in on_path:
                self._cycle([*path[path.index(key) :], key], span)
            elif key not in done:
                path.append(key)
                on_path.add(key)
                pending.append(iter(self._edges.get(key, ())))

    def _cycle(self, keys: list[str], span: Span) -> None:
        chain = " -> ".join(self._modules[k].name if k in self._modules else k for k in keys)
        self.diagnostics.error(
            "FD103", "the files import each other in a circle", span, notes=[chain]
        )

    def _reach(self, key: str) -> set[str]:
        found = {key}
        pending = [key]
        while pending:
            for other, _ in self._edges.get(pending.pop(), ()):
                if other not in found:
                    found.add(other)
                    pending.append(other)
        return found


# `os.path` where `Path` would do: only it answers for names that are too long or hold NUL.


def _is_directory(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110


def _resolve(text: str, folder: Path) -> Path | None:
    if not text or "\0" in text:
        return None
    if text.startswith(SHIPPED):
        return patterns_root() / text.removeprefix(SHIPPED)
    return folder / text


def _nearby(path: Path) -> str | None:
    try:
        siblings = sorted(path.parent.iterdir())
    except OSError:
        return None
    for other in siblings:
        if other.stem == path.stem and other.suffix in SUFFIXES:
            return f"there is a `{other.name}` in the same folder"
    return None


def _display(file: Path, written: str) -> str:
    if written.startswith(SHIPPED):
        return SHIPPED + file.relative_to(patterns_root()).as_posix()
    return os.path.normpath(file)
