"""The plan of a compiled set as rows: what may fire, in which order, for which token counts."""

from __future__ import annotations

from collections.abc import Sequence

from fusiondsl import ir
from fusiondsl.dims import BUILTINS, NO_FACTS, Dim, Facts, Value, evaluate, names, render
from fusiondsl.dims.expr import Binary, Expr
from fusiondsl.engine.compile import Compiled, CompiledRule, PlanRow
from fusiondsl.target import MODEL_DTYPE, MODEL_SIZES

_MODEL = "the dtype of the model"


def plan_rows(compiled: Compiled) -> list[PlanRow]:
    from fusiondsl.proof import Prover

    ready = {rule.name: rule for rule in compiled.rules}
    refused = {item.rule: item.message for item in compiled.ineligible}
    prover = Prover(compiled.program)
    rows: list[PlanRow] = []
    for rule in compiled.program.rules:
        one = ready.get(rule.name)
        rows.append(
            PlanRow(
                rule.name,
                _forms(one) if one is not None else (),
                rule.order,
                one is not None,
                "" if one is not None else refused[rule.name],
                token_range(rule, compiled),
                str(prover.rule(rule)),
            )
        )
    return rows


def _forms(rule: CompiledRule) -> tuple[str, ...]:
    lines: list[str] = []
    for place, admitted in sorted(rule.admitted.items()):
        op = rule.rule.match[rule.path.order[place]].op
        spelled = ["own", *sorted(name for name in admitted if name is not None)]
        lines.append(f"{op}: {' '.join(spelled)}")
    return tuple(lines)


def token_range(rule: ir.Rule, compiled: Compiled) -> str:
    """The bound on `tokens`, as a number where target facts close it."""
    bounds: list[str] = []
    for condition in rule.where:
        if "tokens" in names(condition.expr):
            bounds.append(_closed(condition.expr, compiled) or render(condition.expr))
    return "; ".join(bounds) if bounds else "any"


def _closed(expr: Expr, compiled: Compiled) -> str | None:
    """`tokens * H * itemsize(D) <= limit` as a token count, with the model's widths."""
    if not isinstance(expr, Binary) or expr.op not in ("<=", "<"):
        return None
    sizes = {name: compiled.constants.get(fact) for name, fact in MODEL_SIZES.items()}
    itemsize = compiled.constants.get("model.itemsize")
    if not isinstance(itemsize, int) or None in sizes.values():
        return None

    def itemsize_of(args: Sequence[Value], facts: Facts) -> Value:
        own = list(args) == [_MODEL]
        return Dim.const(itemsize) if own else BUILTINS["itemsize"](args, facts)

    functions = {**compiled.functions, "itemsize": itemsize_of}
    scope = {**compiled.constants, **sizes, "tokens": Dim.symbol("tokens"), MODEL_DTYPE: _MODEL}
    left = evaluate(expr.left, scope, NO_FACTS, functions)
    right = evaluate(expr.right, scope, NO_FACTS, functions)
    if not isinstance(left, Dim) or not isinstance(right, Dim):
        return None
    per_token = left.exact_div(Dim.symbol("tokens"))
    limit = right.as_int()
    if per_token is None or per_token.as_int() is None or limit is None:
        return None
    count = limit // (per_token.as_int() or 1)
    return f"tokens {expr.op} {count}"
