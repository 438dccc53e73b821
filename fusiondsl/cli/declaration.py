"""Op declarations of a checked program as text, in the notation of rule files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fusiondsl import ir
from fusiondsl.dims import render, show

_INDENT = "  "


def kind_of(op: ir.OpDecl) -> str:
    """What an op is for: `extern`, `axiom`, `semantic` (has forms), `target` (has kernels)."""
    if op.extern:
        return "extern"
    if op.axiom:
        return "axiom"
    if op.forms:
        return "semantic"
    return "target" if op.impls else "op"


def signature(op: ir.OpDecl) -> str:
    """`rms_norm(x: D[t.., H], eps: float) -> (y: D[t.., H])`."""
    overload = "" if op.overload == "default" else f".{op.overload}"
    results = ", ".join(f"{r.name}: {type_text(r.type)}" for r in op.results)
    arrow = f" -> ({results})" if results else ""
    return f"{op.name}{overload}({', '.join(_params(op.params))}){arrow}"


def _params(params: Iterable[ir.Param]) -> Iterator[str]:
    keyword_only = False
    for param in params:
        if param.keyword_only and not keyword_only:
            yield "*"
        keyword_only = keyword_only or param.keyword_only
        kind = "" if param.kind == "read" else f"{param.kind} "
        default = "" if param.default is None else f" = {operand_text(param.default)}"
        yield f"{kind}{param.name}: {type_text(param.type)}{default}"


def type_text(type_: ir.Type) -> str:
    question = "?" if type_.optional else ""
    if isinstance(type_, ir.ScalarType):
        return f"{type_.kind}{'[]' if type_.is_list else ''}{question}"
    strides = ""
    if type_.strides is not None:
        strides = f" strides ({', '.join(map(render, type_.strides))})"
    return f"{type_.dtype}[{', '.join(map(render, type_.dims))}]{strides}{question}"


def operand_text(operand: ir.Operand) -> str:
    match operand:
        case ir.Ref(name):
            return name
        case ir.Const(value):
            return show(value)
        case ir.Computed(expr):
            return render(expr)
        case ir.Unrounded(name):
            return f"~{name}"
        case ir.ListOf(items):
            return f"[{', '.join(map(operand_text, items))}]"
    return "_"


def step_lines(steps: Iterable[ir.Step]) -> Iterator[str]:
    """A body, one call a line; temporaries keep the names the checker gave them."""
    for step in steps:
        if isinstance(step, ir.Branch):
            yield f"case {render(step.condition)} {{"
            yield from (_INDENT + line for line in step_lines(step.then))
            yield "} else {"
            yield from (_INDENT + line for line in step_lines(step.otherwise))
            yield "}"
        else:
            yield call_text(step)


def call_text(call: ir.Call) -> str:
    results = ", ".join(name or "_" for name in call.results)
    args = ", ".join(map(operand_text, call.args))
    return f"{results} = {call.op}({args})" if results else f"{call.op}({args})"


def condition_text(condition: ir.Condition) -> str:
    label = "" if condition.label is None else f"{condition.label}: "
    return label + render(condition.expr)


def differences_text(differences: Iterable[ir.Difference]) -> str:
    """`round: normed; recip`."""
    return "; ".join(d.kind if d.value is None else f"{d.kind}: {d.value}" for d in differences)


def declaration_data(op: ir.OpDecl) -> dict[str, Any]:
    """Everything a declaration says, as JSON; types, bodies and conditions are texts."""
    return {
        "params": [_param_data(param) for param in op.params],
        "results": [{"name": r.name, "type": type_text(r.type)} for r in op.results],
        "means": None if op.means is None else list(step_lines(op.means)),
        "forms": [_form_data(form) for form in op.forms],
        "where": [condition_data(condition) for condition in op.where],
        "available": [condition_data(condition) for condition in op.available],
        "impls": list(map(_impl, op.impls)),
        "effects": list(map(_effect, op.effects)),
        "unread": list(map(unread_text, op.unread)),
        "differs": list(map(_difference, op.differs)),
    }


def condition_data(condition: ir.Condition) -> dict[str, Any]:
    return {"label": condition.label, "condition": render(condition.expr)}


def _param_data(param: ir.Param) -> dict[str, Any]:
    return {
        "name": param.name,
        "type": type_text(param.type),
        "kind": param.kind,
        "default": None if param.default is None else operand_text(param.default),
        "keyword_only": param.keyword_only,
    }


def _form_data(form: ir.Form) -> dict[str, Any]:
    return {
        "name": form.name,
        "body": list(step_lines(form.body)),
        "fixed": {name: operand_text(value) for name, value in form.fixed},
        "where": [condition_data(condition) for condition in form.where],
        "differs": list(map(_difference, form.differs)),
    }


def _effect(effect: ir.Effect) -> str:
    return f"{effect.resource}({', '.join(map(render, effect.args))})"


def unread_text(unread: ir.Unread) -> str:
    return f"{unread.parameter} when {render(unread.when)}"


def _difference(difference: ir.Difference) -> str:
    return differences_text([difference])


def details(op: ir.OpDecl) -> list[str]:
    """Everything a declaration says, a block a clause."""
    lines = [f"{'extern ' if op.extern else ''}op {signature(op)}"]
    if op.doc:
        lines += ["", *op.doc.splitlines()]
    lines += ["", *_facts(op)]
    if op.means is not None:
        lines += _block("means", step_lines(op.means))
    for form in op.forms:
        lines += _form(form)
    lines += _block("where", map(condition_text, op.where))
    lines += _block("available", map(condition_text, op.available))
    lines += _block("impl", map(_impl, op.impls))
    return lines


def _facts(op: ir.OpDecl) -> list[str]:
    facts = [("kind", kind_of(op)), ("torch op", op.torch_name)]
    if op.span is not None:
        facts.append(("declared", str(op.span)))
    for effect in op.effects:
        facts.append(("effect", _effect(effect)))
    for unread in op.unread:
        facts.append(("unread", unread_text(unread)))
    if op.differs:
        facts.append(("differs", differences_text(op.differs)))
    width = max(len(name) for name, _ in facts)
    return [f"{name:<{width}}  {text}" for name, text in facts]


def _form(form: ir.Form) -> list[str]:
    body = list(step_lines(form.body))
    body += [f"# {name} = {operand_text(value)}" for name, value in form.fixed]
    lines = _block(f"form {form.name}", body)
    if form.where:
        lines.append(f"{_INDENT}where {'; '.join(map(condition_text, form.where))}")
    if form.differs:
        lines.append(f"{_INDENT}differs {differences_text(form.differs)}")
    return lines


def _impl(impl: ir.Impl) -> str:
    args = [render(arg) for arg in impl.args]
    args += [f"{name} = {render(value)}" for name, value in impl.kwargs]
    results = "" if impl.results is None else f" -> {render(impl.results)}"
    when = "" if impl.when is None else f" when {render(impl.when)}"
    return f'"{impl.location}"({", ".join(args)}){results}{when}'


def _block(title: str, lines: Iterable[str]) -> list[str]:
    inside = [_INDENT + line for line in lines]
    return ["", title, *inside] if inside else []
