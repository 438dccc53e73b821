"""Prints modules as YAML: one layout, the keys of `shapes` in their order, comments kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from fusiondsl.dims import expr as ex
from fusiondsl.syntax import ast
from fusiondsl.syntax import print_expr as show
from fusiondsl.syntax.comments import Comments
from fusiondsl.syntax.literals import is_name
from fusiondsl.syntax.print_fuse import FusePrinter
from fusiondsl.syntax.yaml_scalars import is_plain, quoted, scalar

_WIDTH = 100
T = TypeVar("T")


def module(node: ast.Module, comments: Comments) -> str:
    printer = _Printer(comments)
    lines: list[str] = []
    for key, kind, text in printer.groups():
        found = [item for item in node.items if isinstance(item, kind)]
        if not found:
            continue
        above, first = printer.first(found[0], text)
        lines += ["", *above, f"{key}:"] if lines else [*above, f"{key}:"]
        lines += _indented(first)
        for item in found[1:]:
            lines += [""] if kind in (ast.Op, ast.Rule, ast.Fuse) else []
            lines += _indented(printer.item(item, text))
    rest = comments.rest()
    lines += ["", *rest] if rest and lines else rest
    return "\n".join(lines) + "\n" if lines else ""


def _indented(lines: Iterable[str]) -> list[str]:
    return ["  " + line if line else line for line in lines]


def _entry(lines: Sequence[str]) -> list[str]:
    """`lines`, keys of a mapping, as one entry of a list."""
    return ["- " + lines[0], *("  " + line if line else line for line in lines[1:])]


class _Printer:
    def __init__(self, comments: Comments) -> None:
        self._comments = comments
        self._fuse = FusePrinter(comments)

    def groups(self) -> Iterator[tuple[str, type[Any], Callable[[Any], list[str]]]]:
        yield "imports", ast.Import, lambda node: [f"- {scalar(node.path)}"]
        yield "lets", ast.Let, lambda node: [_let(node)]
        yield "dtypes", ast.DTypeSet, _dtypes
        yield "tables", ast.Table, self._table
        yield "predicates", ast.Predicate, self._predicate
        yield "ops", ast.Op, lambda node: _entry(list(self._op(node)))
        yield "rules", ast.Rule, lambda node: _entry(list(self._rule(node)))
        yield "fuse", ast.Fuse, lambda node: _entry(list(self._fuse_item(node)))
        yield "expect", ast.Expect, _expect

    def first(
        self, node: ast.Item, text: Callable[[Any], list[str]]
    ) -> tuple[list[str], list[str]]:
        """The first item of a group; comments set apart from it go above the key of the group."""
        leading = self._comments.leading(node.span, keep_blank=True)
        header = self._comments.header(node.span)
        apart = len(leading) - leading[::-1].index("") if "" in leading else 0
        header += [comment for comment in leading[:apart] if comment]
        return header, [*leading[apart:], *self.item(node, text)]

    def item(self, node: ast.Item, text: Callable[[Any], list[str]]) -> list[str]:
        leading = self._comments.leading(node.span) + self._comments.header(node.span)
        lines = self._behind(node.span, text(node))
        return [*leading, *self._comments.inside(node.span), *lines]

    def _behind(self, span: Any, lines: list[str]) -> list[str]:
        trailing = self._comments.trailing(span)
        if not trailing:
            return lines
        return [f"{lines[0]}  {trailing}"] if len(lines) == 1 else [trailing, *lines]

    def _commented(self, node: Any, lines: list[str]) -> list[str]:
        above = [comment for comment in self._comments.leading(node.span) if comment]
        return above + self._behind(node.span, lines)

    # --- items -----------------------------------------------------------------------------------

    def _table(self, node: ast.Table) -> list[str]:
        params = ", ".join(param.name for param in node.params)
        lines = [f"{node.name.name}:", f"  params: [{params}]", "  rows:"]
        if not node.rows:
            lines[-1] += " []"
        for row in node.rows:
            cells = [show.expression(cell) for cell in (*row.keys, row.value)]
            text = ", ".join(scalar(cell, flow=True) for cell in cells)
            lines += ["    " + line for line in self._commented(row, [f"- [{text}]"])]
        return lines

    def _predicate(self, node: ast.Predicate) -> list[str]:
        if not node.params:
            return [f"{node.name.name}: {{}}"]
        return list(self._params(node.name.name, node.params))

    def _op(self, node: ast.Op) -> Iterator[str]:
        name = node.name.name
        if node.extern and (node.overload != "default" or name.count(".") > 1):
            name += f".{node.overload}"
        yield f"name: {name}"
        yield from _doc(node.doc)
        yield from ["extern: true"] if node.extern else []
        yield from self._params("params", node.params)
        yield from _results(node.results)
        yield from ["axiom: true"] if node.axiom else []
        if node.means is not None:
            yield from self._statements("means", node.means)
        yield from self._list("forms", node.forms, self._form)
        yield from self._conditions("where", node.where)
        yield from self._conditions("available", node.available)
        yield from self._list("impls", node.impls, lambda impl: _entry(_impl(impl)))
        yield from self._list("effects", node.effects, _effect)
        yield from self._list("unread", node.unread, lambda u: [f"- {scalar(show.unread(u))}"])
        yield from self._differences("differs", node.differs)

    def _rule(self, node: ast.Rule) -> Iterator[str]:
        yield f"name: {node.name.name}"
        yield from _doc(node.doc)
        yield from self._params("inputs", node.params)
        yield from self._lets(node.lets)
        yield from self._statements("match", node.match)
        yield from self._statements("replace", node.replace)
        yield from self._conditions("where", node.where)
        yield from self._differences("allow", node.allow)
        yield from self._last_keys(node)

    def _fuse_item(self, node: ast.Fuse) -> Iterator[str]:
        yield f"target: {node.target.name}"
        yield from [] if node.name is None else [f"name: {node.name.name}"]
        yield from _doc(node.doc)
        yield from _names("given", node.given)
        if node.fixed:
            yield "fixed:"
        for part in node.fixed:
            yield f"  {part.name.name}: {scalar(show.expression(part.value))}"
        yield from self._lets(node.lets)
        yield from self._conditions("where", node.where)
        yield from self._differences("allow", node.allow)
        yield from _names("keep", node.keep)
        yield from self._last_keys(node)

    def _last_keys(self, node: ast.Rule | ast.Fuse) -> Iterator[str]:
        yield from _names("before", node.before)
        yield from _names("after", node.after)
        yield from self._list("examples", node.examples, _example)

    # --- clauses ---------------------------------------------------------------------------------

    def _list(self, key: str, nodes: Sequence[T], text: Callable[[T], list[str]]) -> Iterator[str]:
        if nodes:
            yield f"{key}:"
        for node in nodes:
            yield from _indented(self._commented(node, text(node)))

    def _lets(self, nodes: Sequence[ast.Let]) -> Iterator[str]:
        if nodes:
            yield "lets:"
        for node in nodes:
            yield from _indented(self._commented(node, [_let(node)]))

    def _params(self, key: str, nodes: Sequence[ast.Param]) -> Iterator[str]:
        if nodes:
            yield f"{key}:"
        for node in nodes:
            star = "* " if node.keyword_only else ""
            line = f"{node.name.name}: {scalar(star + show.param_type(node))}"
            yield from _indented(self._commented(node, [line]))

    def _statements(self, key: str, nodes: Sequence[ast.Statement]) -> Iterator[str]:
        if not nodes:
            yield f'{key}: ""'
            return
        yield f"{key}: |"
        yield from self._fuse.statements(nodes, "  ")

    def _form(self, node: ast.Form) -> list[str]:
        lines = [f"name: {node.name.name}", *self._statements("body", node.body)]
        lines += self._conditions("where", node.where)
        return _entry([*lines, *self._differences("differs", node.differs)])

    def _conditions(self, key: str, nodes: Sequence[ast.Condition]) -> Iterator[str]:
        if nodes:
            yield f"{key}:"
        labels = [node.label.name for node in nodes if node.label is not None]
        as_map = len(set(labels)) == len(nodes)
        for node in nodes:
            text = scalar(show.expression(node.expr))
            line = text if node.label is None else f"{node.label.name}: {text}"
            yield from _indented(self._commented(node, [line if as_map else f"- {line}"]))

    def _differences(self, key: str, nodes: Sequence[ast.Difference]) -> Iterator[str]:
        lines = [self._commented(node, [f"- {show.difference(node)}"]) for node in nodes]
        bare = all(len(line) == 1 and ":" not in line[0] and "#" not in line[0] for line in lines)
        if bare and nodes:
            yield f"{key}: [{', '.join(show.difference(node) for node in nodes)}]"
        elif nodes:
            yield f"{key}:"
            for line in lines:
                yield from _indented(line)


def _let(node: ast.Let) -> str:
    return f"{node.name.name}: {scalar(show.expression(node.value))}"


def _dtypes(node: ast.DTypeSet) -> list[str]:
    return [f"{node.name.name}: [{', '.join(member.name for member in node.members)}]"]


def _doc(doc: str | None) -> list[str]:
    if doc is None:
        return []
    lines = doc.split("\n")
    fits = all(line.isprintable() and line == line.rstrip() for line in lines)
    if len(lines) > 1 and fits and lines[-1] and lines[0].strip() == lines[0] != "":
        return ["doc: |", *("  " + line if line else "" for line in lines)]
    return [f"doc: {scalar(doc)}"]


def _results(nodes: Sequence[ast.Result]) -> list[str]:
    if len(nodes) == 1 and nodes[0].name.name == "result":
        return [f"results: {scalar(show.type_(nodes[0].type))}"]
    lines = [f"  {node.name.name}: {scalar(show.type_(node.type))}" for node in nodes]
    return ["results:", *lines] if lines else []


def _names(key: str, nodes: Sequence[ast.Ident]) -> list[str]:
    return [f"{key}: [{', '.join(node.name for node in nodes)}]"] if nodes else []


def _impl(node: ast.Impl) -> list[str]:
    lines = [f"call: {scalar(show.impl_call(node))}"]
    if node.when is not None:
        lines.append(f"when: {scalar(show.expression(node.when))}")
    return lines


def _effect(node: ast.Effect) -> list[str]:
    args = ", ".join(show.expression(arg) for arg in node.args)
    return [f"- {scalar(f'{node.resource.name}({args})')}"]


def _example(node: ast.Example) -> list[str]:
    outcome = [f"fires: {'true' if node.fires else 'false'}"]
    outcome += [f"because: {node.because.name}"] if node.because is not None else []
    return _with_bindings([], node.bindings, outcome, indent=4)


def _expect(node: ast.Expect) -> list[str]:
    path = scalar(str(node.graph.value), flow=True)
    keys = [f"rule: {node.rule.name}", f"sites: {show.expression(node.sites)}", f"graph: {path}"]
    return _with_bindings(keys, node.given, [], indent=2)


def _with_bindings(
    before: Sequence[str], bindings: Sequence[ast.Binding], after: Sequence[str], indent: int
) -> list[str]:
    """An entry of a list on one line, where it fits behind `indent` columns."""
    flow = [_binding(binding, flow=True) for binding in bindings]
    line = f"- {{{', '.join([*before, *(text for text in flow if text), *after])}}}"
    if all(flow) and len(line) <= _WIDTH - indent:
        return [line]
    lines = [_binding(binding, flow=False) or _as_block(binding) for binding in bindings]
    return _entry([part for text in (*before, *lines, *after) for part in text.split("\n")])


def _binding(node: ast.Binding, flow: bool) -> str:
    """`name: value`; empty where the value needs a block: quotes would make it a string.

    A bare word is a string as the value of a fact, elsewhere a name.
    """
    name, value = node.name.name, node.value
    is_fact = name.startswith(("env.", "model."))
    if isinstance(value, ex.Literal) and isinstance(value.value, str):
        bare = is_fact and is_name(value.value, dotted=True)
        return f"{name}: {value.value if bare else quoted(value.value)}"
    text = show.expression(value)
    is_word = is_fact and isinstance(value, ex.Name)
    return f"{name}: {text}" if is_plain(text, flow) and not is_word else ""


def _as_block(node: ast.Binding) -> str:
    return f"{node.name.name}: |\n  {show.expression(node.value)}"
