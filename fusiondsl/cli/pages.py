"""The pages of `fusiondsl docs`: one a rule, one an op, and an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from fusiondsl import artifact, ir
from fusiondsl.cli import markdown as md
from fusiondsl.cli.declaration import differences_text, kind_of, signature
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.dims import names, render, show
from fusiondsl.dims.expr import Spread
from fusiondsl.proof import Prover
from fusiondsl.syntax import ast, parse
from fusiondsl.syntax.comments import Comments
from fusiondsl.syntax.print_fuse import FusePrinter

MARK = "<!-- Written by `fusiondsl docs`; changes are lost. -->"
"""The first line of every page."""


def pages(program: ir.Program) -> dict[str, str]:
    """All pages, by their path in the directory."""
    book = _Book(program)
    made = {"index.md": book.index()}
    made |= {f"rules/{rule.name}.md": book.rule(rule) for rule in program.rules}
    made |= {f"ops/{name}.md": book.op(name, op) for name, op in program.ops.items()}
    return dict(sorted(made.items()))


class _Book:
    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._file_name = artifact.file_namer(program)
        self._texts = _Texts()
        self._prover = Prover(program)
        self._matching = _by_op(program, lambda rule: rule.match)
        self._writing = _by_op(program, lambda rule: rule.replace)

    # --- index -----------------------------------------------------------------------------------

    def index(self) -> str:
        rules = self._program.rules
        return md.page(
            (
                MARK,
                md.heading(1, "Rules and ops"),
                md.heading(2, "Rules"),
                "In the order in which they are tried.",
                md.table(("rule", "what it does"), [self._index_row(rule) for rule in rules]),
                md.heading(2, "By source op"),
                self._index_by(self._matching),
                md.heading(2, "By target"),
                self._index_by(self._writing),
                md.heading(2, "Ops"),
                md.table(("op", "kind", "what it does"), self._index_ops()),
            )
        )

    def _index_row(self, rule: ir.Rule) -> tuple[str, str]:
        return _link("rules", rule.name), md.prose(rule.doc or "")

    def _index_by(self, rules_of: Mapping[str, list[str]]) -> str:
        rows = [
            (_link("ops", op), ", ".join(_link("rules", rule) for rule in rules))
            for op, rules in sorted(rules_of.items())
        ]
        return md.table(("op", "rules"), rows)

    def _index_ops(self) -> Iterator[tuple[str, str, str]]:
        for name, op in self._program.ops.items():
            yield _link("ops", name), kind_of(op), md.prose(op.doc or "")

    # --- rules -----------------------------------------------------------------------------------

    def rule(self, rule: ir.Rule) -> str:
        targets = {name: self._program.ops[name] for name in self._called(rule.replace)}
        return md.page(
            (
                MARK,
                md.heading(1, md.code(rule.name)),
                md.prose(rule.doc or ""),
                md.listed(self._rule_facts(rule)),
                md.block(self._texts.of(rule.span), "fuse"),
                *_section("Conditions", self._conditions(rule, targets)),
                *_section("Availability", self._availability(targets)),
                *_section("Examples", _examples(rule)),
            )
        )

    def _rule_facts(self, rule: ir.Rule) -> Iterator[str]:
        yield f"matches {self._links(rule.match)}"
        yield f"writes {self._links(rule.replace)}"
        yield (
            f"order: {rule.order}"
            + _relative("before", rule.before)
            + _relative("after", rule.after)
        )
        yield f"token range: {_token_range(rule)}"
        yield f"proof: {md.prose(str(self._prover.rule(rule)))}"
        if rule.allow:
            yield f"may differ from the source by: {md.prose(differences_text(rule.allow))}"
        if rule.span is not None:
            yield f"declared in {self._at(rule.span)}"

    def _links(self, calls: Iterable[ir.Call]) -> str:
        called = self._called(calls)
        return ", ".join(_link("../ops", name) for name in called) or "primitives only"

    def _called(self, calls: Iterable[ir.Call]) -> list[str]:
        return list(dict.fromkeys(call.op for call in calls if call.op in self._program.ops))

    # --- ops -------------------------------------------------------------------------------------

    def op(self, name: str, op: ir.OpDecl) -> str:
        return md.page(
            (
                MARK,
                md.heading(1, md.code(name)),
                md.prose(op.doc or ""),
                md.listed(self._op_facts(op)),
                md.block(self._texts.of(op.span) or [signature(op)], "fuse"),
                *_section("Conditions", self._conditions_table(_op_conditions(name, op))),
                *_section("Availability", self._availability({name: op})),
                *_section("Rules that match it", _rule_links(self._matching.get(name, []))),
                *_section("Rules that write it", _rule_links(self._writing.get(name, []))),
            )
        )

    def _op_facts(self, op: ir.OpDecl) -> Iterator[str]:
        yield f"kind: {kind_of(op)}"
        yield f"torch op: {md.code(op.torch_name)}"
        for effect in op.effects:
            args = ", ".join(map(render, effect.args))
            yield f"stays in order with what else uses {md.code(f'{effect.resource}({args})')}"
        for unread in op.unread:
            when = md.code(render(unread.when))
            yield f"does not depend on {md.code(unread.parameter)} when {when}"
        for impl in op.impls:
            when = "" if impl.when is None else f" when {md.code(render(impl.when))}"
            yield f"kernel: {md.code(impl.location)}{when}"
        if op.differs:
            yield f"may differ from its meaning by: {md.prose(differences_text(op.differs))}"
        if op.span is not None:
            yield f"declared in {self._at(op.span)}"

    # --- conditions -------------------------------------------------------------------------------

    def _conditions(self, rule: ir.Rule, targets: Mapping[str, ir.OpDecl]) -> str:
        stated = (*rule.where, *(readers.condition for readers in rule.readers))
        own = [("this rule", condition) for condition in stated]
        of_targets = [row for name, op in targets.items() for row in _op_conditions(name, op)]
        return self._conditions_table([*own, *of_targets])

    def _conditions_table(self, rows: Iterable[tuple[str, ir.Condition]]) -> str:
        cells = [
            (
                md.code(condition.label) if condition.label else "",
                md.code(render(condition.expr)),
                origin + ("" if condition.span is None else f", {self._at(condition.span)}"),
            )
            for origin, condition in rows
        ]
        return md.table(("label", "condition", "comes from"), cells) if cells else ""

    def _availability(self, targets: Mapping[str, ir.OpDecl]) -> str:
        return self._conditions_table(
            (_link("../ops", name), condition)
            for name, op in targets.items()
            for condition in op.available
        )

    def _at(self, span: Span) -> str:
        return md.code(f"{self._file_name(span.source.name)}:{span.line}")


def _by_op(
    program: ir.Program, calls_of: Callable[[ir.Rule], Iterable[ir.Call]]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for rule in program.rules:
        for name in dict.fromkeys(call.op for call in calls_of(rule)):
            if name in program.ops:
                found.setdefault(name, []).append(rule.name)
    return found


def _link(folder: str, name: str) -> str:
    return md.link(md.code(name), f"{folder}/{name}.md")


def _rule_links(rules: Iterable[str]) -> str:
    return md.listed(_link("../rules", rule) for rule in rules)


def _section(title: str, content: str) -> tuple[str, ...]:
    return (md.heading(2, title), content) if content else ()


def _relative(word: str, rules: Iterable[str]) -> str:
    names_ = ", ".join(md.link(md.code(name), f"{name}.md") for name in rules)
    return f", {word} {names_}" if names_ else ""


def _op_conditions(name: str, op: ir.OpDecl) -> list[tuple[str, ir.Condition]]:
    return [(f"arguments of {_link('../ops', name)}", condition) for condition in op.where]


def _token_range(rule: ir.Rule) -> str:
    """The conditions on leading dimensions, whose product counts tokens."""
    types = [param.type for param in rule.params if isinstance(param.type, ir.TensorType)]
    leading = {dim.name for type_ in types for dim in type_.dims if isinstance(dim, Spread)}
    bounds = [item.expr for item in rule.where if leading & set(names(item.expr))]
    return " and ".join(md.code(render(bound)) for bound in bounds) or "any"


def _examples(rule: ir.Rule) -> str:
    rows = [(_bindings(example), _outcome(example)) for example in rule.examples]
    return md.table(("with", "the rule"), rows) if rows else ""


def _bindings(example: ir.Example) -> str:
    return ", ".join(md.code(f"{name} = {show(value)}") for name, value in example.bindings)


def _outcome(example: ir.Example) -> str:
    if example.fires:
        return "fires"
    return "is refused" + (f" because of {md.code(example.because)}" if example.because else "")


# --- declarations as text ------------------------------------------------------------------------


class _Texts:
    """Items of rule files in the canonical `.fuse` spelling, with their comments."""

    def __init__(self) -> None:
        self._items: dict[Source, list[tuple[ast.Item, list[str]]]] = {}

    def of(self, span: Span | None) -> list[str]:
        """The item that `span` is in."""
        if span is None:
            return []
        if span.source not in self._items:
            self._items[span.source] = _printed(span.source)
        return next(
            (
                lines
                for item, lines in self._items[span.source]
                if item.span.start <= span.start < item.span.end
            ),
            [],
        )


def _printed(source: Source) -> list[tuple[ast.Item, list[str]]]:
    module = parse(source, Diagnostics())
    printer = FusePrinter(Comments(module))
    return [(item, _without_header(printer.item(item))) for item in module.items]


def _without_header(lines: list[str]) -> list[str]:
    """Comments that a blank line keeps apart are about the file."""
    return lines[len(lines) - lines[::-1].index("") :] if "" in lines else lines
