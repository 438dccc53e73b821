"""Hypothesis strategies for modules that the grammar can spell."""

from __future__ import annotations

from hypothesis import strategies as st

from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.dims import expr as ex
from fusiondsl.syntax import ast
from fusiondsl.syntax.levels import BINARY

SOURCE = Source("made.fuse", "")
NOWHERE = Span(SOURCE, 0, 0)

PARAMS = ("p0", "p1")
"""Every op and rule has these, so that methods of them are methods."""
WORDS = ("a", "b", "match", "case", "out", "when", "H", "T_1", "axiom", "rule", "x", "as", "keep")
plain = st.sampled_from(WORDS)
dotted = st.one_of(plain, st.sampled_from(("ns.f", "env.tp_size", "ns.sub.match", "_C.rms_norm")))
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


def ident(names: st.SearchStrategy[str] = plain) -> st.SearchStrategy[ast.Ident]:
    return st.builds(ast.Ident, names, st.just(NOWHERE))


literals = st.builds(
    ex.Literal,
    st.one_of(
        st.integers(0, 2**63 - 1),
        st.floats(0, allow_nan=False, allow_infinity=False).map(abs),
        text,
        st.booleans(),
        st.none(),
    ),
)
leaves = st.one_of(
    literals,
    st.builds(ex.Name, dotted),
    st.just(ex.Wildcard()),
    st.builds(ex.Spread, plain),
)


def _tuples(items: st.SearchStrategy[ex.Expr], low: int = 0) -> st.SearchStrategy[tuple[ex.Expr]]:
    return st.lists(items, min_size=low, max_size=3).map(tuple)


def _grown(inner: st.SearchStrategy[ex.Expr], scoped: bool) -> st.SearchStrategy[ex.Expr]:
    names = ("k", "group_size", "out")
    keywords = st.lists(
        st.builds(ex.Keyword, st.sampled_from(names), inner),
        max_size=2,
        unique_by=lambda word: word.name,
    ).map(tuple)
    calls = st.builds(ex.Call, st.one_of(dotted, st.just("round?")), _tuples(inner), keywords)
    ends = st.one_of(st.none(), inner)
    items = st.one_of(inner, st.builds(ex.Slice, ends, ends), st.just(ex.Ellipsis_()))
    receivers = st.one_of(inner.filter(lambda node: not isinstance(node, ex.Name)), calls)
    if scoped:
        receivers = st.one_of(receivers, st.builds(ex.Name, st.sampled_from(PARAMS)))
    return st.one_of(
        st.builds(ex.Unary, st.sampled_from(("-", "not", "~")), inner),
        st.builds(ex.Binary, st.sampled_from(tuple(BINARY)), inner, inner),
        calls,
        st.builds(ex.Method, receivers, plain, _tuples(inner), keywords),
        st.builds(ex.Subscript, inner, st.lists(items, min_size=1, max_size=3).map(tuple)),
        st.builds(ex.Sequence, _tuples(inner)),
    )


def expressions(scoped: bool = False) -> st.SearchStrategy[ex.Expr]:
    """Deep trees; slow to draw, so modules hold flat ones."""
    return st.recursive(leaves, lambda inner: _grown(inner, scoped), max_leaves=12)


def _flat(scoped: bool) -> st.SearchStrategy[ex.Expr]:
    return st.one_of(leaves, _grown(leaves, scoped))


free = _flat(scoped=False)
bound = _flat(scoped=True)

tensor_types = st.builds(
    ast.TensorType,
    ident(st.sampled_from(("D", "bf16", "any", "quant_dtype"))),
    _tuples(free),
    st.one_of(st.none(), _tuples(free)),
    st.booleans(),
    st.just(NOWHERE),
)
scalar_types = st.builds(
    ast.ScalarType,
    st.sampled_from(("float", "int", "bool", "str", "dtype", "layer")),
    st.booleans(),
    st.booleans(),
    st.just(NOWHERE),
)
types = st.one_of(tensor_types, scalar_types)


@st.composite
def params(draw: st.DrawFn) -> tuple[ast.Param, ...]:
    names = [*PARAMS, *draw(st.lists(plain, max_size=3, unique=True))]
    first_keyword = draw(st.integers(0, len(names) + 1))
    return tuple(
        ast.Param(
            ast.Ident(name, NOWHERE),
            draw(types),
            draw(st.sampled_from(("read", "out", "inout", "token"))),
            draw(st.one_of(st.none(), free)),
            position >= first_keyword,
            NOWHERE,
        )
        for position, name in enumerate(names)
    )


@st.composite
def results(draw: st.DrawFn) -> tuple[ast.Result, ...]:
    names = draw(st.one_of(st.just(["result"]), st.lists(plain, max_size=3, unique=True)))
    return tuple(ast.Result(ast.Ident(name, NOWHERE), draw(types), NOWHERE) for name in names)


targets = st.builds(ast.Target, ident(st.one_of(plain, st.just("_"))), st.none() | types)
assigns = st.builds(
    ast.Assign, st.lists(targets, min_size=1, max_size=3).map(tuple), bound, st.just(NOWHERE)
)
effect_calls = st.builds(
    ast.Assign,
    st.just(()),
    st.builds(ex.Call, dotted, _tuples(bound)),
    st.just(NOWHERE),
)
simple = st.one_of(assigns, effect_calls)


def _cases(
    inner: st.SearchStrategy[ast.Statement],
) -> st.SearchStrategy[ast.Statement]:
    block = st.lists(inner, max_size=2).map(tuple)
    return st.one_of(simple, st.builds(ast.Case, bound, block, block, st.just(NOWHERE)))


statements = _cases(_cases(simple))
bodies = st.lists(statements, max_size=2).map(tuple)
conditions = st.lists(
    st.builds(ast.Condition, st.none() | ident(), bound, st.just(NOWHERE)), max_size=2
).map(tuple)
differences = st.lists(
    st.builds(ast.Difference, ident(), st.none() | ident(), st.just(NOWHERE)), max_size=2
).map(tuple)
forms = st.builds(ast.Form, ident(), bodies, conditions, differences, st.just(NOWHERE))
impls = st.builds(
    ast.Impl,
    text,
    _tuples(bound),
    st.lists(st.tuples(plain, bound), max_size=2, unique_by=lambda pair: pair[0]).map(tuple),
    st.none() | bound,
    st.none() | bound,
    st.just(NOWHERE),
)
effects = st.builds(ast.Effect, ident(), _tuples(bound), st.just(NOWHERE))
unread = st.builds(ast.Unread, ident(), bound, st.just(NOWHERE))


@st.composite
def ops(draw: st.DrawFn) -> ast.Op:
    extern = draw(st.booleans())
    name, overload = draw(dotted), "default"
    if extern:
        options = (("f", "default"), ("aten.add", "Tensor"), ("aten.mm", "default"))
        name, overload = draw(st.sampled_from((*options, ("a.b.c", "default"))))
    axiom = draw(st.booleans())
    return ast.Op(
        name=ast.Ident(name, NOWHERE),
        extern=extern,
        overload=overload,
        params=draw(params()),
        results=draw(results()),
        means=None if axiom else draw(st.none() | bodies),
        axiom=axiom,
        forms=draw(st.lists(forms, max_size=2).map(tuple)),
        where=draw(conditions),
        available=draw(conditions),
        impls=draw(st.lists(impls, max_size=2).map(tuple)),
        effects=draw(st.lists(effects, max_size=2).map(tuple)),
        unread=draw(st.lists(unread, max_size=2).map(tuple)),
        differs=draw(differences),
        doc=draw(st.none() | text),
        span=NOWHERE,
    )


bindings = st.lists(
    st.builds(ast.Binding, ident(st.sampled_from(("T", "H", "env.arch", "D", "x.y"))), free),
    max_size=3,
    unique_by=lambda binding: binding.name.name,
).map(tuple)
examples = st.one_of(
    st.builds(ast.Example, bindings, st.just(True), st.none(), st.just(NOWHERE)),
    st.builds(ast.Example, bindings, st.just(False), st.none() | ident(), st.just(NOWHERE)),
)
names = st.lists(ident(dotted), max_size=2).map(tuple)
full_bodies = st.lists(statements, min_size=1, max_size=2).map(tuple)


def lets(value: st.SearchStrategy[ex.Expr]) -> st.SearchStrategy[ast.Let]:
    return st.builds(ast.Let, ident(), value, st.just(NOWHERE))


rules = st.builds(
    ast.Rule,
    name=ident(dotted),
    params=params(),
    lets=st.lists(lets(bound), max_size=2, unique_by=lambda let: let.name.name).map(tuple),
    match=full_bodies,
    replace=full_bodies,
    where=conditions,
    allow=differences,
    before=names,
    after=names,
    examples=st.lists(examples, max_size=2).map(tuple),
    doc=st.none() | text,
    span=st.just(NOWHERE),
)


fuses = st.builds(
    ast.Fuse,
    target=ident(dotted),
    given=st.lists(ident(), max_size=2).map(tuple),
    fixed=st.lists(
        st.builds(ast.Binding, ident(), free), max_size=2, unique_by=lambda part: part.name.name
    ).map(tuple),
    name=st.none() | ident(dotted),
    lets=st.lists(lets(free), max_size=2, unique_by=lambda let: let.name.name).map(tuple),
    where=st.lists(
        st.builds(ast.Condition, st.none() | ident(), free, st.just(NOWHERE)), max_size=2
    ).map(tuple),
    allow=differences,
    keep=names,
    before=names,
    after=names,
    examples=st.lists(examples, max_size=2).map(tuple),
    doc=st.none() | text,
    span=st.just(NOWHERE),
)


@st.composite
def tables(draw: st.DrawFn) -> ast.Table:
    heads = draw(st.lists(ident(), min_size=1, max_size=3).map(tuple))
    rows = draw(st.lists(st.tuples(*[free] * len(heads), free), max_size=3))
    return ast.Table(
        draw(ident()),
        heads,
        tuple(ast.TableRow(tuple(row[:-1]), row[-1], NOWHERE) for row in rows),
        NOWHERE,
    )


predicates = st.builds(
    ast.Predicate,
    ident(dotted),
    params(),
    st.just(NOWHERE),
)
imports = st.builds(ast.Import, text, st.just(NOWHERE))
dtype_sets = st.builds(
    ast.DTypeSet, ident(), st.lists(ident(), min_size=1, max_size=3).map(tuple), st.just(NOWHERE)
)
expects = st.builds(
    ast.Expect,
    ident(dotted),
    st.builds(ex.Literal, st.integers(0, 2**63 - 1)),
    st.builds(ex.Literal, text),
    bindings,
    st.just(NOWHERE),
)
items = st.one_of(
    imports, lets(free), dtype_sets, tables(), predicates, ops(), rules, fuses, expects
)


def _key(item: ast.Item) -> object:
    """YAML keeps these kinds in mappings, so their names must differ."""
    if isinstance(item, ast.Let | ast.DTypeSet | ast.Table | ast.Predicate):
        return (type(item), item.name.name)
    return id(item)


modules = st.builds(
    ast.Module,
    st.just(SOURCE),
    st.lists(items, max_size=3, unique_by=_key).map(tuple),
)
