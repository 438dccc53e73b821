"""Prints modules as `.fuse` text: one layout, comments kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fusiondsl.diagnostics.source import Span
from fusiondsl.dims import expr as ex
from fusiondsl.syntax import ast
from fusiondsl.syntax import print_expr as show
from fusiondsl.syntax.comments import Comments
from fusiondsl.syntax.literals import write_string

_WIDTH = 100
_INDENT = "  "
_WRAP = "    "
_LONGEST_HEAD = 4000
"""How far in front of the first statement the keyword of a block is looked for, in characters."""


@dataclass(frozen=True)
class _Line:
    """One thing in a block: what it prints to, and where it stands in the source."""

    lines: Sequence[str]
    span: Span | None


def module(node: ast.Module, comments: Comments) -> str:
    printer = FusePrinter(comments)
    parts: list[str] = []
    previous: ast.Item | None = None
    for item in node.items:
        lines = printer.item(item)
        apart = previous is not None and not _same_group(previous, item)
        if apart or (previous is not None and lines[0].startswith("#")):
            parts.append("")
        parts += lines
        previous = item
    rest = comments.rest()
    if rest:
        parts += ["", *rest] if parts else rest
    return "\n".join(parts) + "\n" if parts else ""


def _same_group(first: ast.Item, second: ast.Item) -> bool:
    """Short items of one kind stand together."""
    short = (ast.Import, ast.Let, ast.DTypeSet, ast.Expect)
    return type(first) is type(second) and isinstance(second, short)


def wrapped(head: str, items: Sequence[str], tail: str, indent: str) -> list[str]:
    """`head(items)tail` on one line, or filled lines with a deeper indentation."""
    line = f"{indent}{head}{', '.join(items)}{tail}"
    if len(line) <= _WIDTH or not items:
        return [line]
    inner = indent + _WRAP
    return [f"{indent}{head}".rstrip(), *filled(inner, items, tail, inner)]


def filled(first: str, items: Sequence[str], tail: str, indent: str) -> list[str]:
    """As many items a line as fit; the first line starts with `first`."""
    lines: list[str] = []
    current, empty = first, True
    for position, item in enumerate(items):
        last = position == len(items) - 1
        piece = item + (tail if last else ",")
        if len(current) + len(piece) > _WIDTH and not empty:
            lines.append(current.rstrip())
            current = indent
        current += piece + ("" if last else " ")
        empty = False
    return [*lines, current]


class FusePrinter:
    def __init__(self, comments: Comments) -> None:
        self._comments = comments

    # --- items -----------------------------------------------------------------------------------

    def item(self, node: ast.Item) -> list[str]:
        leading = self._comments.leading(node.span, keep_blank=True)
        header = self._comments.header(node.span)
        leading = [*header, "", *leading] if header else leading
        lines = self._body(node)
        trailing = self._comments.trailing(node.span)
        if trailing:
            lines[-1] += f"  {trailing}"
        inside = self._comments.inside(node.span)
        if not inside:
            return leading + lines
        if lines[-1] == "}":
            return [*leading, *lines[:-1], *(_INDENT + comment for comment in inside), "}"]
        return [*leading, *inside, *lines]

    def _body(self, node: ast.Item) -> list[str]:
        match node:
            case ast.Import():
                return [f"import {write_string(node.path)}"]
            case ast.Let():
                return [_let(node)]
            case ast.DTypeSet():
                names = [member.name for member in node.members]
                return wrapped(f"dtypes {node.name.name} = (", names, ")", "")
            case ast.Table():
                return self._table(node)
            case ast.Predicate():
                return _signature(
                    f"extern predicate {node.name.name}", show.params(node.params), ")"
                )
            case ast.Op():
                return self._op(node)
            case ast.Rule():
                return self._rule(node)
            case ast.Fuse():
                return self._fuse(node)
            case _:
                return _expect(node)

    def _table(self, node: ast.Table) -> list[str]:
        params = ", ".join(param.name for param in node.params)
        rows = [_Line([_row(row)], row.span) for row in node.rows]
        return self._many(f"table {node.name.name}({params})", rows, "")

    def _op(self, node: ast.Op) -> list[str]:
        name = node.name.name
        if node.extern and (node.overload != "default" or name.count(".") > 1):
            name += f".{node.overload}"
        head = ("extern op " if node.extern else "op ") + name
        body = self._clauses(self._op_clauses(node))
        tail = ")" + show.results(node.results) + (" {" if body else "")
        lines = _signature(head, show.params(node.params), tail)
        return [*lines, *body, "}"] if body else lines

    def _op_clauses(self, node: ast.Op) -> Iterable[list[str]]:
        yield self._doc(node)
        for effect in node.effects:
            args = ", ".join(show.expression(arg) for arg in effect.args)
            text = f"{_INDENT}effect {effect.resource.name}({args})"
            yield self._with_comments(effect.span, [text])
        for unread in node.unread:
            text = f"{_INDENT}unread {show.unread(unread)}"
            yield self._with_comments(unread.span, [text])
        if node.axiom:
            yield self._word_clause(node.span, r"\bmeans\s+axiom\b", f"{_INDENT}means axiom")
        elif node.means is not None:
            yield self._statements("means", node.means)
        for form in node.forms:
            yield self._form(form)
        yield self._lines_of("where", node.where, show.condition)
        yield self._lines_of("available", node.available, show.condition)
        for impl in node.impls:
            yield self._with_comments(impl.span, _impl(impl))
        yield self._lines_of("differs", node.differs, show.difference)

    def _rule(self, node: ast.Rule) -> list[str]:
        lines = _signature(f"rule {node.name.name}", show.params(node.params), ") {")
        return [*lines, *self._clauses(self._rule_clauses(node)), "}"]

    def _rule_clauses(self, node: ast.Rule) -> Iterable[list[str]]:
        yield self._doc(node)
        for let in node.lets:
            yield self._with_comments(let.span, [_INDENT + _let(let)])
        yield self._statements("match", node.match)
        yield self._statements("replace", node.replace)
        yield self._lines_of("where", node.where, show.condition)
        yield self._lines_of("allow", node.allow, show.difference)
        yield from self._last_clauses(node)

    def _last_clauses(self, node: ast.Rule | ast.Fuse) -> Iterable[list[str]]:
        yield _names("before", node.before)
        yield _names("after", node.after)
        for example in node.examples:
            yield self._with_comments(example.span, _example(example))

    def _fuse(self, node: ast.Fuse) -> list[str]:
        arguments = show.fuse_arguments(node)
        body = self._clauses(self._fuse_clauses(node))
        tail = ("" if node.name is None else f" as {node.name.name}") + (" {" if body else "")
        head = f"fuse {node.target.name}"
        lines = wrapped(f"{head}(", arguments, f"){tail}", "") if arguments else [head + tail]
        return [*lines, *body, "}"] if body else lines

    def _fuse_clauses(self, node: ast.Fuse) -> Iterable[list[str]]:
        yield self._doc(node)
        for let in node.lets:
            yield self._with_comments(let.span, [_INDENT + _let(let)])
        yield self._lines_of("where", node.where, show.condition)
        yield self._lines_of("allow", node.allow, show.difference)
        yield _names("keep", node.keep)
        yield from self._last_clauses(node)

    def _doc(self, node: ast.Op | ast.Rule | ast.Fuse) -> list[str]:
        if node.doc is None:
            return []
        text = f"{_INDENT}doc {write_string(node.doc)}"
        return self._word_clause(node.span, r'\bdoc\s+"(?:\\.|[^"\\])*"', text)

    def _word_clause(self, item: Span, pattern: str, text: str) -> list[str]:
        """A clause without a node of its own: its place is looked up in the text of the item."""
        found = re.search(pattern, item.text)
        if found is None:
            return [text]
        start = item.start
        span = Span(item.source, start + found.start(), start + found.end())
        return self._with_comments(span, [text])

    def _clauses(self, clauses: Iterable[list[str]]) -> list[str]:
        return [line for lines in clauses for line in lines]

    def _with_comments(self, span: Span, lines: list[str]) -> list[str]:
        indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        leading = [indent + comment for comment in self._comments.leading(span) if comment]
        trailing = self._comments.trailing(span)
        if trailing:
            lines = [*lines[:-1], f"{lines[-1]}  {trailing}"]
        return leading + lines

    # --- blocks ----------------------------------------------------------------------------------

    def _form(self, node: ast.Form) -> list[str]:
        leading = [_INDENT + comment for comment in self._comments.leading(node.span) if comment]
        head = f"form {node.name.name}"
        found = [_Line(self._statement(part, _INDENT * 2), part.span) for part in node.body]
        clauses = [
            self._lines_of("where", node.where, show.condition),
            self._lines_of("differs", node.differs, show.difference),
        ]
        reserved = sum(len(clause[0].lstrip()) + 1 for clause in clauses if clause)
        lines = self._block(head, found, _INDENT, reserved=reserved)
        for clause in clauses:
            if clause:
                lines = [*lines[:-1], f"{lines[-1]} {clause[0].lstrip()}", *clause[1:]]
        return leading + self._with_comments(node.span, lines)

    def statements(self, nodes: Iterable[ast.Statement], indent: str) -> list[str]:
        """Statements without a block around them, with their comments."""
        inner = indent[len(_INDENT) :]
        found = [_Line(self._statement(node, indent), node.span) for node in nodes]
        return self._inner(found, inner)

    def _lines_of(
        self, keyword: str, nodes: Iterable[Any], text: Callable[[Any], str]
    ) -> list[str]:
        found = [_Line([text(node)], node.span) for node in nodes]
        together = text is show.difference
        return self._block(keyword, found, _INDENT, together) if found else []

    def _statements(
        self, head: str, nodes: Iterable[ast.Statement], indent: str = _INDENT
    ) -> list[str]:
        found = [_Line(self._statement(node, indent + _INDENT), node.span) for node in nodes]
        return self._block(head, found, indent)

    def _statement(self, node: ast.Statement, indent: str) -> list[str]:
        if isinstance(node, ast.Assign):
            return [line[len(indent) :] for line in _assign(node, indent)]
        condition = show.expression(node.condition)
        lines = self._many_statements(f"case {condition}", node.then, indent)
        if node.otherwise:
            rest = self._many_statements("else", node.otherwise, indent)
            lines = [*lines[:-1], f"{lines[-1]} {rest[0].lstrip()}", *rest[1:]]
        return [line[len(indent) :] for line in lines]

    def _many_statements(self, head: str, nodes: Iterable[ast.Statement], indent: str) -> list[str]:
        found = [_Line(self._statement(node, indent + _INDENT), node.span) for node in nodes]
        return self._many(head, found, indent)

    def _block(
        self,
        head: str,
        found: Sequence[_Line],
        indent: str,
        together: bool = False,
        reserved: int = 0,
    ) -> list[str]:
        """On one line where it holds one short thing without comments, or short things only.

        `reserved` columns behind it are needed for more.
        """
        if not found:
            return [f"{indent}{head} {{ }}"]
        above, opening = self._opening(head, found, indent)
        before = self._comments.count
        inner = self._inner(found, indent)
        commented = self._comments.count < before or "#" in opening
        content = "; ".join(line.strip() for line in inner)
        line = f"{indent}{head} {{ {content} }}"
        if commented or len(line) + reserved > _WIDTH or (len(inner) > 1 and not together):
            return [*above, opening, *inner, indent + "}"]
        return [*above, line]

    def _many(self, head: str, found: Sequence[_Line], indent: str) -> list[str]:
        above, opening = self._opening(head, found, indent)
        return [*above, opening, *self._inner(found, indent), indent + "}"]

    def _opening(self, head: str, found: Sequence[_Line], indent: str) -> tuple[list[str], str]:
        """The comments above a block, and its first line with the comment behind the brace."""
        keyword = _keyword_span(head.split()[0], found[0].span) if found else None
        if keyword is None:
            return [], f"{indent}{head} {{"
        above = [indent + comment for comment in self._comments.leading(keyword) if comment]
        behind = self._comments.trailing(keyword)
        return above, f"{indent}{head} {{" + (f"  {behind}" if behind else "")

    def _inner(self, found: Sequence[_Line], indent: str) -> list[str]:
        inner = indent + _INDENT
        lines: list[str] = []
        for part in found:
            own = [inner + line if line else line for line in part.lines]
            lines += self._with_comments(part.span, own) if part.span is not None else own
        last = found[-1].span if found else None
        closing = self._comments.closing(last) if last is not None else []
        return lines + [inner + comment for comment in closing]


def _keyword_span(keyword: str, first: Span | None) -> Span | None:
    """From the keyword of a block to its `{`, where the block stands in `.fuse` text."""
    if first is None:
        return None
    base = max(0, first.start - _LONGEST_HEAD)
    text = first.source.text[base : first.start]
    head = rf"(?<![\w.]){keyword}\b[^{{}}\n]*\{{(?=\s*(?:#[^\n]*\s*)*$)"
    found = list(re.finditer(head, text))
    if not found:
        return None
    return Span(first.source, base + found[-1].start(), base + found[-1].end())


def _signature(head: str, params: Sequence[str], tail: str) -> list[str]:
    """The parameters wrap; results that do not fit behind them go to a line of their own."""
    lines = wrapped(f"{head}(", params, tail, "")
    if len(lines) == 1 or not tail.startswith(") -> "):
        return lines
    alone = wrapped(f"{head}(", params, ")", "")
    if len(alone) > 1 and len(lines[-1]) <= _WIDTH and len(lines) == len(alone):
        return lines
    return [*alone, *_results(tail[2:])]


def _results(text: str) -> list[str]:
    line = _WRAP + text
    if len(line) <= _WIDTH or not text.startswith("-> ("):
        return [line]
    closing = text.rindex(")")
    items = _split(text[len("-> (") : closing])
    return filled(_WRAP + "-> (", items, text[closing:], _WRAP * 2)


def _split(text: str) -> list[str]:
    """At the commas outside brackets."""
    items, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            items.append(text[start:position].strip())
            start = position + 1
    return [*items, text[start:].strip()]


def _let(node: ast.Let) -> str:
    return f"let {node.name.name} = {show.expression(node.value)}"


def _row(node: ast.TableRow) -> str:
    keys = ", ".join(show.expression(key) for key in node.keys)
    return f"({keys}) = {show.expression(node.value)}"


def _names(keyword: str, names: Sequence[ast.Ident]) -> list[str]:
    """As many statements as lines are needed: a newline ends one."""
    lines: list[str] = []
    for ident in names:
        longer = f"{lines[-1]}, {ident.name}" if lines else ""
        if longer and len(longer) <= _WIDTH:
            lines[-1] = longer
        else:
            lines.append(f"{_INDENT}{keyword} {ident.name}")
    return lines


def _assign(node: ast.Assign, indent: str) -> list[str]:
    targets = ", ".join(show.target(target) for target in node.targets)
    head = f"{targets} = " if targets else ""
    text = f"{indent}{head}{show.expression(node.value, show.BODY)}"
    if len(text) <= _WIDTH or not isinstance(node.value, ex.Call | ex.Method):
        return [text]
    items = show.call_arguments(node.value, show.BODY)
    if not items:
        return [text]
    callee = text[len(indent) : len(text) - len(", ".join(items)) - 1]
    return wrapped(callee, items, ")", indent)


def _impl(node: ast.Impl) -> list[str]:
    results = "" if node.results is None else f" -> {show.expression(node.results)}"
    when = "" if node.when is None else f" when {show.expression(node.when)}"
    head, args = f"impl {write_string(node.location)}(", show.impl_arguments(node)
    lines = wrapped(head, args, f"){results}{when}", _INDENT)
    alone = wrapped(head, args, ")", _INDENT)
    if len(lines) == 1 or not results or (len(alone) > 1 and len(lines) == len(alone)):
        return lines
    return [*alone, f"{_WRAP}{(results + when).strip()}"]


def _expect(node: ast.Expect) -> list[str]:
    """What is given stands behind the graph, or on lines of its own."""
    path = write_string(str(node.graph.value))
    text = f"expect {node.rule.name} == {show.expression(node.sites)} in graph {path}"
    if not node.given:
        return [text]
    given = _bindings(node.given)
    line = f"{text} {{ {', '.join(given)} }}"
    if len(line) <= _WIDTH:
        return [line]
    return [text, *filled(_WRAP + "{ ", given, " }", _WRAP + _INDENT)]


def _bindings(nodes: Sequence[ast.Binding]) -> list[str]:
    return [f"{node.name.name} = {show.expression(node.value)}" for node in nodes]


def _example(node: ast.Example) -> list[str]:
    bindings = _bindings(node.bindings)
    because = "" if node.because is None else f" because {node.because.name}"
    outcome = "fires" if node.fires else f"refused{because}"
    if not bindings:
        return [f"{_INDENT}example {{ }} {outcome}"]
    head = f"{_INDENT}example {{ "
    *above, last = filled(head, bindings, " }", " " * len(head))
    if len(last) + 1 + len(outcome) <= _WIDTH:
        return [*above, f"{last} {outcome}"]
    return [*above, last, f"{_WRAP}{outcome}"]
