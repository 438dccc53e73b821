"""Declarations against what is installed: schemas, fakes, and rules on their own sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Span
from fusiondsl.engine import CompiledRules
from fusiondsl.graphs.externs import define_missing
from fusiondsl.ir.program import Const, Impl, ListOf, OpDecl, Param, Program, ScalarType
from fusiondsl.ops.context import Context
from fusiondsl.ops.lookup import declared_overload, torch_overload
from fusiondsl.target import Target
from fusiondsl.verify.examples import run_self_match
from fusiondsl.verify.samples import NoSample, sample_inputs

_TORCH = "torch:"


def check_installed(program: Program, diagnostics: Diagnostics) -> None:
    """Reports what does not fit; ops that are not installed are passed over."""
    for decl in program.ops.values():
        if decl.extern:
            _check_schema(decl, diagnostics)
    context = Context.of(program)
    for decl, span in _targets(program):
        _check_target(decl, context, span, diagnostics)
    _check_self_matches(program, diagnostics)


# --- schemas -----------------------------------------------------------------------------------


def _check_schema(decl: OpDecl, diagnostics: Diagnostics) -> None:
    overload = declared_overload(decl)
    if overload is None:
        return
    notes = tuple(_differences(decl, overload._schema))
    if notes:
        diagnostics.error(
            "FD510",
            f"the installed `{decl.torch_name}` has another schema than is declared",
            decl.span,
            notes=(*notes, f"installed: {overload._schema}"),
        )


def _differences(decl: OpDecl, schema: torch._C.FunctionSchema) -> Iterator[str]:
    real = {argument.name: argument for argument in schema.arguments}
    declared = [p.name for p in decl.params]
    if declared != [argument.name for argument in schema.arguments]:
        yield f"arguments are {', '.join(real)}, declared are {', '.join(declared)}"
        return
    for param in decl.params:
        yield from _argument_differences(param, real[param.name])
    if len(schema.returns) != len(decl.results):
        yield f"it returns {len(schema.returns)} values, declared are {len(decl.results)}"


def _argument_differences(param: Param, real: Any) -> Iterator[str]:
    writes = real.alias_info is not None and real.alias_info.is_write
    if writes != (param.kind in ("out", "inout")):
        yield f"`{param.name}` is {'written' if writes else 'only read'}"
    if real.kwarg_only != param.keyword_only:
        yield f"`{param.name}` is {'' if real.kwarg_only else 'not '}keyword-only"
    optional = str(real.real_type).startswith("Optional") or str(real.type).startswith("Optional")
    if optional != param.type.optional:
        yield f"`{param.name}` may {'' if optional else 'not '}be none"
    yield from _default_differences(param, real)


def _default_differences(param: Param, real: Any) -> Iterator[str]:
    has_default = real.has_default_value()
    if has_default != (param.default is not None):
        yield f"`{param.name}` has {'a' if has_default else 'no'} default"
        return
    is_dtype = isinstance(param.type, ScalarType) and param.type.kind == "dtype"
    if not has_default or is_dtype:
        return  # dtypes are numbers in schemas
    declared = _plain(param.default)
    if type(declared) is not type(real.default_value) or declared != real.default_value:
        yield f"the default of `{param.name}` is {real.default_value!r}, declared is {declared!r}"


def _plain(default: Const | ListOf | None) -> object:
    if isinstance(default, ListOf):
        return [item.value for item in default.items if isinstance(item, Const)]
    return None if default is None else default.value


# --- targets -----------------------------------------------------------------------------------


def _targets(program: Program) -> Iterator[tuple[OpDecl, Span]]:
    """Every op that a rule calls, with the place of a call."""
    places: dict[str, Span] = {}
    for rule in program.rules:
        for call in rule.replace:
            if call.op in program.ops and call.span is not None:
                places.setdefault(call.op, call.span)
    for name in sorted(places):
        yield program.ops[name], places[name]


def _check_target(decl: OpDecl, context: Context, span: Span, diagnostics: Diagnostics) -> None:
    if decl.extern:
        # a graph holds the op itself, so its own fake has to work
        problem = _fake_problem(decl, context)
        if problem is not None:
            diagnostics.error(
                "FD511",
                f"the fake implementation of `{decl.torch_name}` does not take what is declared",
                span,
                notes=[problem],
                help="target another op, or wrap it in one whose fake is right",
            )
    for impl in decl.impls:
        problem = _kernel_problem(impl)
        if problem is not None:
            diagnostics.error(
                "FD513",
                f"`{impl.location}` does not take what `{decl.name}` passes",
                decl.span,
                notes=[problem],
            )


def _fake_problem(decl: OpDecl, context: Context) -> str | None:
    """Runs the installed fake on arguments that the declaration allows."""
    overload = declared_overload(decl)
    if overload is None:
        return None
    try:
        sample = sample_inputs(decl, context)
    except NoSample:
        return None
    try:
        with FakeTensorMode() as mode:
            passed = [
                mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
                for value in sample.positional(decl)
            ]
            overload(*passed)
    except Exception as error:  # whatever a fake raises is what we look for
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None


def _kernel_problem(impl: Impl) -> str | None:
    """Holds the arguments of an `impl` against the schema of an installed torch op."""
    if not impl.location.startswith(_TORCH):
        return None
    overload = torch_overload(impl.location.removeprefix(_TORCH))
    if overload is None:
        return None
    arguments = overload._schema.arguments
    positional = [a.name for a in arguments if not a.kwarg_only]
    if len(impl.args) > len(positional):
        return f"it takes {len(positional)} positional arguments, not {len(impl.args)}"
    given = {*positional[: len(impl.args)], *(name for name, _ in impl.kwargs)}
    unknown = sorted(given - {a.name for a in arguments})
    missing = [a.name for a in arguments if a.name not in given and not a.has_default_value()]
    if unknown:
        return f"it has no argument `{unknown[0]}`"
    return f"`{missing[0]}` is missing" if missing else None


# --- rules -------------------------------------------------------------------------------------


def _check_self_matches(program: Program, diagnostics: Diagnostics) -> None:
    define_missing(program)
    compiled = CompiledRules(program, Target())
    for rule in program.rules:
        outcome = run_self_match(compiled, rule)
        if outcome.passed is False:
            diagnostics.error(
                "FD512",
                f"the rule `{rule.name}` does not match its own source",
                rule.span,
                notes=[outcome.message] if outcome.message else (),
            )
