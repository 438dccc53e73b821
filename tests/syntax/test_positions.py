"""Every node points at the text it was read from, in both spellings and all YAML styles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from fusiondsl.diagnostics import Source, Span
from fusiondsl.dims import expr as ex
from fusiondsl.syntax import ast, structure
from tests.syntax.support import CASES, read, read_case


def _nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, tuple):
        for part in node:
            yield from _nodes(part)
    elif is_dataclass(node) and not isinstance(node, Span | Source):
        yield node
        for field in fields(node):
            yield from _nodes(getattr(node, field.name))


@pytest.mark.parametrize("name", ["valid.fuse", "valid.yaml"])
def test_names_stand_where_they_say(name: str) -> None:
    module, _ = read_case(CASES / "syntax" / name)
    names = 0
    for node in _nodes(module.items):
        match node:
            case ast.Ident(name, span) if name != "result":
                assert span.text == name
            case ex.Name(id, span=span):
                assert span is not None
                assert span.text == id
            case ex.Call(func, func_span=func_span):
                assert func_span is not None
                assert func_span.text == func
            case _:
                continue
        names += 1
    assert names > 50


def _value(text: str) -> ex.Expr:
    module, diagnostics = read(f"let a = {text}\n")
    assert not len(diagnostics)
    let = module.items[0]
    assert isinstance(let, ast.Let)
    return let.value


@pytest.mark.parametrize(
    "text",
    ["f(a, k = 1)", "(a + b)", "a + (b * c)", "-(a)", "a[.., 1:2]", "(1, 2)", "[1]", "not a",
     "not a in (b,)", "f(a).to(x)[0]", "64 MiB", '"text"', "t..", "a is not none",
     "a not in (b, c)", "_"],
)  # fmt: skip
def test_an_expression_spans_its_text(text: str) -> None:
    value = _value(text)
    assert value.span is not None
    assert value.span.text == text


def test_methods_are_of_values_in_scope() -> None:
    module, diagnostics = read(
        "rule r(x: D[T]) {\n"
        "  match { y = x.to(f32); z = y.sum(-1); w = ns.f(z) }\n"
        "  replace { w = ns.g(x).to(D) }\n"
        "}\n"
        "op f(y: D[T]) { means { r = y.to(f32) }; form own { r = z.to(y) } }\n"
    )
    assert not len(diagnostics)
    kinds = [type(node).__name__ for node in _nodes(module.items) if _is_call(node)]
    assert kinds == ["Method", "Method", "Call", "Method", "Call", "Method", "Call"]


def _is_call(node: Any) -> bool:
    return isinstance(node, ex.Call | ex.Method)


SAME = [
    "match: |\n      y = f(x,\n        1)\n      z = x.to(y)\n",
    "match: |2-\n      y = f(x,\n        1)\n      z = x.to(y)\n",
    'match: "y = f(x, 1)\\nz = x.to(y)"\n',
    'match: "y = f(x,\\\n      \\ 1); z = x.to(y)"\n',
    "match: 'y = f(x,\n      1); z = x.to(y)'\n",
    "match: y = f(x, 1); z = x.to(y)\n",
    "match: y = f(x,\n      1); z =\n      x.to(y)\n",
    "match: >-\n      y = f(x,\n      1);\n      z = x.to(y)\n",
]


@pytest.mark.parametrize("body", SAME, ids=range(len(SAME)))
def test_yaml_scalar_styles(body: str) -> None:
    head = "rules:\n  - name: r\n    inputs: {\"x\": 'D[T]'}\n    "
    module, diagnostics = read(head + body + "    replace: z = g(x)\n", "a.yaml")
    assert not len(diagnostics)
    fuse, _ = read("rule r(x: D[T]) { match { y = f(x, 1); z = x.to(y) }; replace { z = g(x) } }")
    assert structure(module.items) == structure(fuse.items)
    for node in _nodes(module.items):
        if isinstance(node, ex.Name):
            assert node.span is not None
            assert node.span.text == node.id
