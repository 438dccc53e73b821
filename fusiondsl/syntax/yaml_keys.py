"""Names that YAML has as keys: of each kind, a file or an item can have one only once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.syntax import ast
from fusiondsl.syntax.shapes import EXPECT

_KEYED = (ast.Let, ast.DTypeSet, ast.Table, ast.Predicate)
"""Items that stand under their name; the others are entries of lists."""


def check_keys(module: ast.Module, diagnostics: Diagnostics) -> None:
    """Reports what `.fuse` text can say and YAML cannot."""
    for names in _scopes(module):
        seen: dict[str, Span] = {}
        for name in names:
            first = seen.setdefault(name.name, name.span)
            if first is not name.span:
                message = f"`{name.name}` is given twice, which YAML cannot say"
                labels = [Label(first, "first given here")]
                diagnostics.error("FD032", message, name.span, labels=labels)


def _scopes(module: ast.Module) -> Iterator[Iterable[ast.Ident]]:
    for kind in _KEYED:
        yield [item.name for item in module.items if isinstance(item, kind)]
    for item in module.items:
        match item:
            case ast.Op():
                yield _names(item.params)
                yield _names(item.results)
            case ast.Predicate():
                yield _names(item.params)
            case ast.Rule():
                yield _names(item.params)
            case ast.Expect():
                own = [ast.Ident(key.name, item.rule.span) for key in EXPECT.keys]
                yield [*own, *_names(item.given)]
        if isinstance(item, ast.Rule | ast.Fuse):
            yield _names(item.lets)
            yield from (_names(example.bindings) for example in item.examples)


def _names(
    nodes: Iterable[ast.Param | ast.Result | ast.Let | ast.Binding],
) -> list[ast.Ident]:
    return [node.name for node in nodes]
