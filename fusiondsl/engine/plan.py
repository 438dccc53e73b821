"""The plan of a compiled set as rows: what may fire, in which order, for which token counts."""

from __future__ import annotations

from fusiondsl import ir
from fusiondsl.dims import NO_FACTS, Dim, evaluate, names, render
from fusiondsl.dims.expr import Binary, Expr
from fusiondsl.engine.compile import Compiled, CompiledRule, PlanRow
from fusiondsl.proof import Prover


def plan_rows(compiled: Compiled) -> list[PlanRow]:
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
    hidden = compiled.constants.get("model.hidden_size")
    itemsize = compiled.constants.get("model.itemsize")
    if not isinstance(hidden, int) or not isinstance(itemsize, int):
        return None
    functions = dict(compiled.functions)
    functions["itemsize"] = lambda args, facts: Dim.const(itemsize)
    scope = {**compiled.constants, "tokens": Dim.symbol("tokens"), "H": hidden, "D": "model"}
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
