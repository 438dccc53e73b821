"""Test-only torch ops for extern declarations whose libraries are not installed.

Schema and fake come from the declaration. The implementation is the meaning of the semantic op
that has the extern op as a form, so that a graph with `vllm_ir.rms_norm` in it can run anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from fusiondsl.ir.program import Call, Const, Form, ListOf, OpDecl, Operand, Program, Ref
from fusiondsl.ops import reference
from fusiondsl.ops.binding import bind, complete, dtype_of
from fusiondsl.ops.context import Context
from fusiondsl.ops.fake import fake_function
from fusiondsl.ops.lookup import declared_overload
from fusiondsl.ops.schema import schema_text
from fusiondsl.ops.scope import constant

_libraries: dict[str, torch.library.Library] = {}

Implementation = Callable[[dict[str, Any]], Any]


def register_extern_ops(program: Program) -> list[str]:
    """Defines every extern op that does not exist; returns the names of those it defined."""
    context = Context.of(program)
    missing = [d for d in program.ops.values() if d.extern and declared_overload(d) is None]
    for decl in missing:
        _define(decl, program, context)
    return [decl.name for decl in missing]


def _define(decl: OpDecl, program: Program, context: Context) -> None:
    namespace, _, name = decl.torch_name.partition("::")
    library = _libraries.get(namespace)
    if library is None:
        library = _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
    overload = "" if decl.overload in ("", "default") else f".{decl.overload}"
    library.define(schema_text(decl).replace(name, name + overload, 1))
    library.impl(
        name + overload, _implementation(decl, program, context), "CompositeExplicitAutograd"
    )
    library._register_fake(name + overload, fake_function(decl, context))


def _implementation(decl: OpDecl, program: Program, context: Context) -> Callable[..., Any]:
    meanings = list(_meanings(decl, program))

    def run(*args: Any, **kwargs: Any) -> Any:
        arguments = complete(decl, args, kwargs)
        if decl.torch_name in _PLAIN:
            return _PLAIN[decl.torch_name](**arguments)
        for semantic, form in meanings:
            if _spells(form.body[0], decl, arguments):
                return _run_meaning(decl, semantic, form, arguments, context)
        raise NotImplementedError(f"{decl.torch_name} has no meaning for these arguments")

    return run


def _meanings(decl: OpDecl, program: Program) -> Iterator[tuple[OpDecl, Form]]:
    """Semantic ops with a form that is one call of the extern op."""
    key = next(key for key, other in program.ops.items() if other is decl)
    for semantic in program.ops.values():
        for form in semantic.forms:
            if len(form.body) == 1 and form.body[0].op == key:
                yield semantic, form


def _spells(call: Call, decl: OpDecl, arguments: dict[str, Any]) -> bool:
    """Whether the literals of the form are the arguments given."""
    return all(
        _literal(operand) == arguments[param.name]
        for param, operand in zip(decl.call_params, call.args, strict=True)
        if isinstance(operand, Const | ListOf)
    )


def _literal(operand: Operand) -> Any:
    if isinstance(operand, ListOf):
        return [_literal(item) for item in operand.items]
    assert isinstance(operand, Const)
    return constant(operand.value)


def _run_meaning(
    decl: OpDecl, semantic: OpDecl, form: Form, arguments: dict[str, Any], context: Context
) -> Any:
    call = form.body[0]
    given = {n: constant(c.value) for n, c in form.fixed if isinstance(c, Const)}
    for param, operand in zip(decl.call_params, call.args, strict=True):
        if isinstance(operand, Ref):
            given[operand.name] = arguments[param.name]
    places = {name: i for i, name in enumerate(call.results) if name is not None}
    results = [None if name is None else places[name] for name in form.results]
    _add_result_dtypes(decl, semantic, results, arguments, given, context)
    values = list(reference.run(semantic, context, given).values())
    by_place = {p: v for p, v in zip(results, values, strict=True) if p is not None}
    return _deliver(decl, by_place, arguments)


def _add_result_dtypes(
    decl: OpDecl,
    semantic: OpDecl,
    results: list[int | None],
    arguments: dict[str, Any],
    given: dict[str, Any],
    context: Context,
) -> None:
    """A dtype that the spelling has in the type of a result only."""
    scope = bind(decl, arguments, context)
    for place, result in zip(results, semantic.results, strict=True):
        name = result.type.dtype
        wanted = any(p.name == name for p in semantic.params)
        if place is not None and wanted and not isinstance(given.get(name), torch.dtype):
            given[name] = dtype_of(decl.call_results[place].type, scope)


def _deliver(decl: OpDecl, values: dict[int, Any], arguments: dict[str, Any]) -> Any:
    """Writes buffers, returns the op's own results."""
    own = len(decl.results)
    for place, result in list(enumerate(decl.call_results))[own:]:
        if place in values:
            arguments[result.name].copy_(values[place])
    returned = tuple(values[i] for i in range(own))
    if not returned:
        return None
    return returned[0] if own == 1 else returned


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.nn.functional.linear(x, weight, bias)


_PLAIN: dict[str, Callable[..., Any]] = {"vllm::rocm_unquantized_gemm": _linear}
"""Ops that no semantic op has as a form."""
