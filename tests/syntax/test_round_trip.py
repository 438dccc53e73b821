"""What is printed reads back as the same tree, and prints the same again."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fusiondsl.diagnostics import Diagnostics, Source
from fusiondsl.diagnostics.render import render_all
from fusiondsl.dims import expr as ex
from fusiondsl.syntax import ast, parse, print_module, structure
from tests.syntax.strategies import NOWHERE, expressions, modules


def _in_order(module: ast.Module, style: str) -> list[object]:
    found = [structure(item) for item in module.items]
    return sorted(found, key=repr) if style == "yaml" else found


pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")

quick = settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking such trees takes minutes
    suppress_health_check=list(HealthCheck),
)


@quick
@given(expression=expressions())
def test_printed_expressions_read_back(expression: ex.Expr) -> None:
    let = ast.Let(ast.Ident("a", NOWHERE), expression, NOWHERE)
    _check(ast.Module(NOWHERE.source, (let,)), "fuse")


@pytest.mark.parametrize("style", ["fuse", "yaml"])
@quick
@given(module=modules)
def test_printed_modules_read_back(style: str, module: ast.Module) -> None:
    _check(module, style)


def _check(module: ast.Module, style: str) -> None:
    printed = print_module(module, style)  # type: ignore[arg-type]
    diagnostics = Diagnostics()
    again = parse(Source(f"again.{style}", printed), diagnostics)
    assert not diagnostics.has_errors, render_all(diagnostics) + printed
    assert _in_order(again, style) == _in_order(module, style), printed
    assert print_module(again, style) == printed  # type: ignore[arg-type]


@settings(quick, max_examples=50)
@given(module=modules)
def test_conversion_both_ways(module: ast.Module) -> None:
    diagnostics = Diagnostics()
    yaml = parse(Source("a.yaml", print_module(module, "yaml")), diagnostics)
    fuse = parse(Source("a.fuse", print_module(yaml, "fuse")), diagnostics)
    assert not diagnostics.has_errors
    assert _in_order(fuse, "yaml") == _in_order(module, "yaml")
