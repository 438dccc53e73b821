"""The callbacks of the grammar for items, clauses and statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from lark import Token

from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims import expr as ex
from fusiondsl.syntax import ast
from fusiondsl.syntax.build_expr import Arguments, ExpressionBuilder, Parts


@dataclass(slots=True)
class Block:
    """What stands between two brackets."""

    items: tuple[Any, ...]
    span: Span


@dataclass(slots=True)
class Clause:
    kind: str
    value: Any
    head: Span
    """Where its keyword stands."""
    span: Span


@dataclass(slots=True)
class Parameter:
    """What stands right of a parameter's name in YAML."""

    kind: str
    type: ast.Type
    default: ex.Expr | None
    keyword_only: bool
    span: Span


class Given(Protocol):
    """What an op or rule is made of, whatever the spelling it was read from."""

    def once(self, kind: str, otherwise: Any = None) -> Any: ...
    def every(self, kind: str) -> tuple[Any, ...]: ...
    def joined(self, kind: str) -> tuple[Any, ...]: ...


class ClauseReader:
    """The clauses of one op, form or rule, and the check that some stand there only once."""

    def __init__(self, clauses: Iterable[Any], diagnostics: Diagnostics) -> None:
        self._clauses = [clause for clause in clauses if isinstance(clause, Clause)]
        self._diagnostics = diagnostics

    def once(self, kind: str, otherwise: Any = None) -> Any:
        found = [clause for clause in self._clauses if clause.kind == kind]
        for again in found[1:]:
            first = Label(found[0].head, "first given here")
            message = f"`{kind}` is given twice"
            self._diagnostics.error("FD016", message, again.head, labels=[first])
        return found[0].value if found else otherwise

    def every(self, kind: str) -> tuple[Any, ...]:
        return tuple(clause.value for clause in self._clauses if clause.kind == kind)

    def joined(self, kind: str) -> tuple[Any, ...]:
        return tuple(part for value in self.every(kind) for part in value)


class Builder(ExpressionBuilder):
    """One builder serves one parser; `begin` says which text is read next.

    `items` fills up while a module is read, so that what stands before an error is not lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.items: list[ast.Item] = []
        self._params: frozenset[str] = frozenset()

    def _add(self, item: ast.Item) -> None:
        self.items.append(item)
        self._scope.clear()

    # --- items -----------------------------------------------------------------------------------

    def module(self, parts: Parts) -> None:
        """Its items were added one by one."""

    def import_(self, parts: Parts) -> None:
        self._add(ast.Import(self._string(parts[1]), self._span(*parts)))

    def dtype_set(self, parts: Parts) -> None:
        members = tuple(self._plain(token) for token in parts[3:-1])
        span = self._span(parts[0], parts[-1])
        self._add(ast.DTypeSet(self._plain(parts[1]), members, span))

    def file_let(self, parts: Parts) -> None:
        self._add(parts[0].value)

    def let(self, parts: Parts) -> Clause:
        span = self._span(parts[0], parts[2])
        let = ast.Let(self._plain(parts[1]), self._shallow(parts[2]), span)
        return Clause("let", let, self._token(parts[0]), span)

    def table(self, parts: Parts) -> None:
        name, params, rows = self._plain(parts[1]), parts[2], tuple(parts[4:-1])
        check_rows(name, params, rows, self._diagnostics)
        self._add(ast.Table(name, params, rows, self._span(parts[0], parts[-1])))

    def table_params(self, parts: Parts) -> tuple[ast.Ident, ...]:
        return tuple(self._plain(token) for token in parts[1:-1])

    def table_row(self, parts: Parts) -> ast.TableRow:
        value = self._shallow(parts[1])
        return ast.TableRow(parts[0].items, value, self._span(*parts))

    def predicate(self, parts: Parts) -> None:
        params = parts[3]
        span = self._span(parts[0], params)
        self._add(ast.Predicate(self._dotted(parts[2]), params.items, span))

    def op(self, parts: Parts) -> None:
        first = parts[0]
        extern = first.type == "EXTERN"
        token, params, *rest = parts[2 if extern else 1 :]
        results = next((part for part in rest if isinstance(part, Results)), None)
        clauses = next((part for part in rest if isinstance(part, Block)), None)
        span = self._span(first, rest[-1] if rest else params)
        name = self._dotted(token)
        given = ClauseReader(clauses.items if clauses else (), self._diagnostics)
        self._add(
            make_op(name, extern, params.items, results.items if results else (), given, span)
        )

    def op_body(self, parts: Parts) -> Block:
        return self._block(parts)

    fuse_body = op_body

    def rule(self, parts: Parts) -> None:
        given = ClauseReader(parts[4:-1], self._diagnostics)
        span = self._span(parts[0], parts[-1])
        rule = make_rule(self._dotted(parts[1]), parts[2].items, given, span)
        check_bodies(rule, self._diagnostics)
        self._add(rule)

    def fuse(self, parts: Parts) -> None:
        body = next((part for part in parts if isinstance(part, Block)), None)
        given = ClauseReader([*parts, *(body.items if body else ())], self._diagnostics)
        arguments = given.once("arguments", Arguments((), ()))
        fixed = tuple(
            ast.Binding(self._keyword_name(word), self._shallow(word.value))
            for word in arguments.kwargs
        )
        names = tuple(name for arg in arguments.args if (name := self._given(arg)) is not None)
        span = self._span(parts[0], parts[-1])
        self._add(make_fuse(self._dotted(parts[1]), given.once("as"), names, fixed, given, span))

    def _keyword_name(self, word: ex.Keyword) -> ast.Ident:
        start = self._of(word).start
        return ast.Ident(word.name, Span(self._source, start, start + len(word.name)))

    def _given(self, arg: ex.Expr) -> ast.Ident | None:
        """An argument without `=`: only a name of a parameter."""
        if isinstance(arg, ex.Name) and "." not in arg.id:
            return ast.Ident(arg.id, self._of(arg))
        message = "expected the name of a parameter"
        fix = "write `name = value` to fix a parameter"
        self._diagnostics.error("FD022", message, self._of(arg), help=fix)
        return None

    def fuse_arguments(self, parts: Parts) -> Clause:
        return self._clause("arguments", parts[1], parts)

    def fuse_name(self, parts: Parts) -> Clause:
        return self._clause("as", self._dotted(parts[1]), parts)

    def expect(self, parts: Parts) -> None:
        _, rule, relation, sites, _, _, path, *given = parts
        if relation != "==":
            message = "a contract gives the number of sites exactly"
            fix = "write `==`"
            self._diagnostics.error("FD025", message, self._token(relation), help=fix)
        graph = ex.Literal(self._string(path), span=self._token(path))
        bindings = given[0].items if given else ()
        span = self._span(parts[0], parts[-1])
        self._add(ast.Expect(self._dotted(rule), sites, graph, bindings, span))

    def count(self, parts: Parts) -> ex.Literal:
        span = self._span(parts[0], parts[-1])
        if len(parts) > 1:
            message = "a graph cannot have fewer than 0 sites"
            self._diagnostics.error("FD025", message, span)
        return ex.Literal(self._value(parts[-1]), span=span)

    # --- clauses ---------------------------------------------------------------------------------

    def _clause(self, kind: str, value: Any, parts: Parts) -> Clause:
        return Clause(kind, value, self._of(parts[0]), self._span(parts[0], parts[-1]))

    def doc(self, parts: Parts) -> Clause:
        return self._clause("doc", self._string(parts[1]), parts)

    def _block_clause(self, parts: Parts) -> Clause:
        return self._clause(str(parts[0]), parts[1].items, parts)

    match = replace = where = available = allow = differs = _block_clause

    def means(self, parts: Parts) -> Clause:
        self._scope = set(self._params)
        return self._block_clause(parts)

    def axiom(self, parts: Parts) -> Clause:
        return self._clause("means", "axiom", parts)

    def _names_clause(self, parts: Parts) -> Clause:
        return self._clause(str(parts[0]), tuple(map(self._dotted, parts[1:])), parts)

    before = after = keep = _names_clause

    def form(self, parts: Parts) -> Clause:
        given = ClauseReader(parts[3:], self._diagnostics)
        where, differs = given.once("where", ()), given.once("differs", ())
        span = self._span(parts[0], parts[-1])
        self._scope = set(self._params)
        form = ast.Form(self._plain(parts[1]), parts[2].items, where, differs, span)
        return self._clause("form", form, parts)

    def impl(self, parts: Parts) -> Clause:
        return self._clause("impl", self._impl(parts[1:], self._span(parts[0], parts[-1])), parts)

    def _impl(self, parts: Parts, span: Span) -> ast.Impl:
        arguments: Arguments = parts[2]
        args = self._all_shallow(arguments.args)
        kwargs = tuple((word.name, self._shallow(word.value)) for word in arguments.kwargs)
        given = ClauseReader(parts[4:], self._diagnostics)
        results, when = given.once("results"), given.once("when")
        return ast.Impl(self._string(parts[0]), args, kwargs, results, when, span)

    def impl_results(self, parts: Parts) -> Clause:
        return self._clause("results", self._shallow(parts[0]), parts)

    def impl_when(self, parts: Parts) -> Clause:
        return self._clause("when", self._shallow(parts[1]), parts)

    def effect(self, parts: Parts) -> Clause:
        return self._clause("effect", self._effect(parts[1:], parts[0]), parts)

    def _effect(self, parts: Parts, first: Token) -> ast.Effect:
        span = self._span(first, parts[-1])
        return ast.Effect(self._plain(parts[0]), self._all_shallow(parts[2:-1]), span)

    def unread(self, parts: Parts) -> Clause:
        return self._clause("unread", self._unread(parts[1:], parts[0]), parts)

    def _unread(self, parts: Parts, first: Token) -> ast.Unread:
        span = self._span(first, parts[-1])
        return ast.Unread(self._plain(parts[0]), self._shallow(parts[2]), span)

    def example(self, parts: Parts) -> Clause:
        because = parts[3].value if len(parts) > 3 else None
        fires = parts[2].type == "FIRES"
        span = self._span(parts[0], parts[-1])
        return self._clause("example", ast.Example(parts[1].items, fires, because, span), parts)

    def because(self, parts: Parts) -> Clause:
        return self._clause("because", self._plain(parts[1]), parts)

    def binding(self, parts: Parts) -> ast.Binding:
        return ast.Binding(self._dotted(parts[0]), self._shallow(parts[1]))

    # --- blocks ----------------------------------------------------------------------------------

    def _block(self, parts: Parts) -> Block:
        return Block(tuple(parts[1:-1]), self._span(parts[0], parts[-1]))

    block = conditions = differences = bindings = given = _block

    def row_keys(self, parts: Parts) -> Block:
        return Block(self._all_shallow(parts[1:-1]), self._span(parts[0], parts[-1]))

    def assign(self, parts: Parts) -> ast.Assign:
        targets, value = parts[0], self._shallow(parts[1])
        span = Span(self._source, targets[0].name.span.start, self._of(value).end)
        return ast.Assign(targets, value, span)

    def effect_call(self, parts: Parts) -> ast.Assign:
        value = self._shallow(parts[0])
        if not isinstance(value, ex.Call | ex.Wildcard):
            self._no_effect(value)
        return ast.Assign((), value, self._of(value))

    def _no_effect(self, value: ex.Expr) -> None:
        compared = isinstance(value, ex.Binary) and value.op == "=="
        fix = "a value is given with a single `=`" if compared else "write `name = ...`"
        message = "the value is not used; only a call may stand alone"
        self._diagnostics.error("FD024", message, self._of(value), help=fix)

    def targets(self, parts: Parts) -> tuple[ast.Target, ...]:
        return tuple(parts)

    def target(self, parts: Parts) -> ast.Target:
        name = self._plain(parts[0])
        self._scope.add(name.name)
        return ast.Target(name, parts[1] if len(parts) > 1 else None)

    def case(self, parts: Parts) -> ast.Case:
        otherwise = parts[4].items if len(parts) > 3 else ()
        condition = self._shallow(parts[1])
        return ast.Case(condition, parts[2].items, otherwise, self._span(parts[0], parts[-1]))

    def label(self, parts: Parts) -> ast.Ident:
        return self._plain(parts[0])

    def condition(self, parts: Parts) -> ast.Condition:
        label = parts[0] if len(parts) > 1 else None
        value = self._shallow(parts[-1])
        return ast.Condition(label, value, self._span(parts[0], value))

    def difference(self, parts: Parts) -> ast.Difference:
        kind, *value = (self._plain(token) for token in parts)
        return ast.Difference(kind, value[0] if value else None, self._span(parts[0], parts[-1]))

    # --- parameters ------------------------------------------------------------------------------

    def params(self, parts: Parts) -> Block:
        found: list[ast.Param] = []
        star: Token | None = None
        for part in parts[1:-1]:
            if isinstance(part, ast.Param):
                found.append(part if star is None else _keyword_only(part))
                self._scope.add(part.name.name)
            elif star is None:
                star = part
            else:
                self._diagnostics.error("FD020", "`*` is given twice", self._token(part))
        self._params = frozenset(self._scope)
        return Block(tuple(found), self._span(parts[0], parts[-1]))

    def keywords_only(self, parts: Parts) -> Token:
        token: Token = parts[0]
        return token

    def param(self, parts: Parts) -> ast.Param:
        written = parts[0].type == "KIND"
        name, type_, *default = parts[1:] if written else parts
        kind = str(parts[0]) if written else "read"
        value = default[0].value if default else None
        span = self._span(parts[0], parts[-1])
        return ast.Param(self._plain(name), type_, kind, value, False, span)

    def default(self, parts: Parts) -> Clause:
        return self._clause("default", self._shallow(parts[0]), parts)

    def results(self, parts: Parts) -> Results:
        first, last = parts[0], parts[-1]
        if first.__class__ is not Token:
            return Results(
                (ast.Result(ast.Ident("result", first.span), first, first.span),), first.span
            )
        return Results(tuple(parts[1:-1]), self._span(first, last))

    def result(self, parts: Parts) -> ast.Result:
        return ast.Result(self._plain(parts[0]), parts[1], self._span(*parts))

    # --- pieces of text in YAML files ------------------------------------------------------------

    def statements_text(self, parts: Parts) -> tuple[ast.Statement, ...]:
        return tuple(parts)

    def _only(self, parts: Parts) -> Any:
        return parts[0]

    condition_text = difference_text = type_text = count_text = _only

    def expression_text(self, parts: Parts) -> ex.Expr:
        return self._shallow(parts[0])

    def param_text(self, parts: Parts) -> Parameter:
        span = self._span(parts[0], parts[-1])
        words = [str(part) for part in parts if part.__class__ is Token]
        type_, *default = (part for part in parts if part.__class__ is not Token)
        kinds = [word for word in words if word != "*"]
        value = default[0].value if default else None
        return Parameter(kinds[0] if kinds else "read", type_, value, "*" in words, span)

    def impl_text(self, parts: Parts) -> ast.Impl:
        return self._impl(parts, self._span(parts[0], parts[-1]))

    def effect_text(self, parts: Parts) -> ast.Effect:
        return self._effect(parts, parts[0])

    def unread_text(self, parts: Parts) -> ast.Unread:
        return self._unread(parts, parts[0])


@dataclass(slots=True)
class Results:
    items: tuple[ast.Result, ...]
    span: Span


def _keyword_only(param: ast.Param) -> ast.Param:
    return ast.Param(param.name, param.type, param.kind, param.default, True, param.span)


def split_overload(ident: ast.Ident) -> tuple[ast.Ident, str]:
    """`aten.add.Tensor` is overload `Tensor` of `aten.add`; two parts are the default overload."""
    if ident.name.count(".") < 2:
        return ident, "default"
    name, _, overload = ident.name.rpartition(".")
    span = Span(ident.span.source, ident.span.start, ident.span.start + len(name))
    return ast.Ident(name, span), overload


def make_op(
    written: ast.Ident,
    extern: bool,
    params: tuple[ast.Param, ...],
    results: tuple[ast.Result, ...],
    given: Given,
    span: Span,
) -> ast.Op:
    name, overload = split_overload(written) if extern else (written, "default")
    means = given.once("means")
    return ast.Op(
        name=name,
        extern=extern,
        overload=overload,
        params=params,
        results=results,
        means=None if means == "axiom" else means,
        axiom=means == "axiom",
        forms=given.every("form"),
        where=given.once("where", ()),
        available=given.once("available", ()),
        impls=given.every("impl"),
        effects=given.every("effect"),
        unread=given.every("unread"),
        differs=given.once("differs", ()),
        doc=given.once("doc"),
        span=span,
    )


def make_rule(name: ast.Ident, params: tuple[ast.Param, ...], given: Given, span: Span) -> ast.Rule:
    return ast.Rule(
        name=name,
        params=params,
        lets=given.every("let"),
        match=given.once("match", ()),
        replace=given.once("replace", ()),
        where=given.once("where", ()),
        allow=given.once("allow", ()),
        before=given.joined("before"),
        after=given.joined("after"),
        examples=given.every("example"),
        doc=given.once("doc"),
        span=span,
    )


def make_fuse(
    target: ast.Ident,
    name: ast.Ident | None,
    names: tuple[ast.Ident, ...],
    fixed: tuple[ast.Binding, ...],
    given: Given,
    span: Span,
) -> ast.Fuse:
    return ast.Fuse(
        target=target,
        given=names,
        fixed=fixed,
        name=name,
        lets=given.every("let"),
        where=given.once("where", ()),
        allow=given.once("allow", ()),
        keep=given.joined("keep"),
        before=given.joined("before"),
        after=given.joined("after"),
        examples=given.every("example"),
        doc=given.once("doc"),
        span=span,
    )


def check_rows(
    name: ast.Ident,
    params: tuple[ast.Ident, ...],
    rows: Iterable[ast.TableRow],
    diagnostics: Diagnostics,
) -> None:
    for row in rows:
        if len(row.keys) != len(params):
            counts = f"{len(row.keys)} keys, `{name.name}` has {len(params)} parameters"
            diagnostics.error("FD020", f"the row has {counts}", row.span)


def check_bodies(rule: ast.Rule, diagnostics: Diagnostics) -> None:
    for kind, body in (("match", rule.match), ("replace", rule.replace)):
        if not body:
            diagnostics.error(
                "FD017",
                f"rule `{rule.name.name}` has no `{kind}`",
                rule.name.span,
                help=f"add `{kind} {{ ... }}` with at least one statement",
            )
