"""Lints: each stands for accidents that really happened with hand-written fusions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fusiondsl.analysis.body import TEMPORARY, computed, reads
from fusiondsl.analysis.contradiction import contradiction
from fusiondsl.analysis.declare import Declared
from fusiondsl.analysis.exprs import conjuncts, walk
from fusiondsl.analysis.rules import Built
from fusiondsl.decl.primitives import PRIMITIVES
from fusiondsl.diagnostics.diagnostic import Label
from fusiondsl.dims.dim import Dim
from fusiondsl.dims.evaluate import truth
from fusiondsl.dims.expr import Binary, Expr, Literal, Name
from fusiondsl.dims.expr import Call as CallExpr
from fusiondsl.dims.names import names
from fusiondsl.dims.truth import Truth
from fusiondsl.dims.values import Value
from fusiondsl.ir.program import (
    Anything,
    Branch,
    Call,
    Condition,
    ListOf,
    OpDecl,
    Operand,
    Ref,
    ScalarType,
    Step,
    TensorType,
)
from fusiondsl.ir.strata import PRIMITIVE
from fusiondsl.target import MODEL_DTYPE, MODEL_SIZES, Target

TOKENS = "tokens"

_BOUNDS = frozenset(("<", "<=", ">", ">="))

Lint = Callable[[Built], None]

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1201", "gfx1250")
"""Architectures a rule could be meant for, besides those it names."""


def lint_rule(built: Built) -> None:
    for lint in RULE_LINTS:
        lint(built)


def lint_op(declared: Declared, decl: OpDecl) -> None:
    for lint in OP_LINTS:
        lint(declared, decl)


# --- what is read ------------------------------------------------------------------------------


def uninitialised_read(built: Built) -> None:
    """A fresh buffer is not zero: kernels that always add the residual add garbage."""
    empty = {
        name
        for call in built.rule.replace
        if call.op in ("prim.empty", "prim.empty_like")
        for name in call.results
    }
    for call in built.rule.replace:
        for name in reads(call):
            if name in empty:
                built.diagnostics.error(
                    "FD307",
                    f"`{call.op}` reads memory that nobody has written",
                    call.span,
                    notes=["`empty` gives whatever lay there before"],
                    help="pass `zeros(..)`, `zeros_like(..)` or `none`",
                )


def dropped_attribute(built: Built) -> None:
    """What the source depends on and the target never hears of changes results silently."""
    used = _mentioned(built.rule.replace) | _in_conditions(built.rule.where) | _kept_inputs(built)
    for param in built.rule.params:
        if not isinstance(param.type, ScalarType) or param.name in used:
            continue
        if param.name in _mentioned(built.rule.match):
            built.diagnostics.error(
                "FD308",
                f"`{param.name}` of the source is neither passed on nor constrained",
                built.scope.spans.get(param.name, built.rule.span),
                notes=[
                    "the rule fires for every value of it, and the result does not depend on it"
                ],
                help=f"use it in `replace`, state it in `where` (`{param.name} == ...`), "
                "or write the value in `match`",
            )


def ignored_argument(built: Built) -> None:
    """`_` for an argument says that it does not matter, but then nothing constrains it."""
    for call in built.rule.match:
        if _stays_whole(built, call):
            continue
        for (what, name), arg in zip(_parameters(built, call), call.args, strict=True):
            if _is_open(arg):
                built.diagnostics.error(
                    "FD308",
                    f"the {what} `{name}` of `{call.op.removeprefix(PRIMITIVE)}` is neither passed "
                    "on nor constrained",
                    call.span,
                    notes=["`_` fits every value, and the result does not depend on it"],
                    help="give it a name and use it, or write the value that the target assumes",
                )


def _parameters(built: Built, call: Call) -> list[tuple[str, str]]:
    """What each argument of a call is, and its name."""
    decl = built.signatures.get(call.op)
    if decl is not None:
        scalars = [isinstance(p.type, ScalarType) for p in decl.call_params]
        names_of = [p.name for p in decl.call_params]
    else:
        primitive = PRIMITIVES[call.op.removeprefix(PRIMITIVE)]
        names_of = list(primitive.params)
        scalars = [position >= primitive.tensors for position in range(len(names_of))]
    kinds = ("attribute" if scalar else "input" for scalar in scalars)
    return list(zip(kinds, names_of, strict=True))


def _is_open(arg: Operand) -> bool:
    if isinstance(arg, ListOf):
        return any(map(_is_open, arg.items))
    return isinstance(arg, Anything)


def _stays_whole(built: Built, call: Call) -> bool:
    """Is the call still there, and read wherever the source read it?"""
    results = {name for name in call.results if name is not None}
    behind = {name for other in built.rule.match if other is not call for name in reads(other)}
    read = {name for new in built.rule.replace for name in reads(new)}
    return results <= set(built.rule.kept) and results & behind <= read


def dropped_input(built: Built) -> None:
    """A tensor of the source that the new code does not read."""
    used = _mentioned(built.rule.replace) | _in_conditions(built.rule.where)
    matched = _mentioned(built.rule.match)
    kept = _kept_inputs(built)
    for param in built.rule.params:
        tensor = isinstance(param.type, TensorType)
        if tensor and param.name in matched and param.name not in used | kept:
            built.diagnostics.warning(
                "FD309",
                f"`{param.name}` of the source is not read by the new code",
                built.scope.spans.get(param.name, built.rule.span),
            )


def _kept_inputs(built: Built) -> set[str]:
    """What kept producers still read, and the producers of that."""
    read: set[str] = set(built.rule.kept)
    for call in reversed(built.rule.match):
        if any(result in read for result in call.results):
            read.update(reads(call))
    return read - set(built.rule.kept)


def unbound_parameter(built: Built) -> None:
    """Only `match` can bind a parameter."""
    matched = _mentioned(built.rule.match)
    for param in built.rule.params:
        if param.name not in matched:
            built.diagnostics.error(
                "FD310",
                f"`{param.name}` does not occur in `match`, so nothing binds it",
                built.scope.spans.get(param.name, built.rule.span),
            )


def mutated_with_reader(built: Built) -> None:
    """After a call that writes into an argument the old value is gone."""
    for call in built.rule.replace:
        decl = built.signatures.get(call.op)
        if decl is None:
            continue
        for param, arg in zip(decl.call_params, call.args, strict=True):
            if param.kind == "inout" and isinstance(arg, Ref):
                _check_readers(built, call, arg.name, param.name)


def _check_readers(built: Built, call: Call, name: str, param: str) -> None:
    others = [c for c in built.rule.replace if c is not call and name in reads(c)]
    twice = reads(call).count(name) > 1
    survives = name in built.rule.kept or any(new == name for _, new in built.rule.outputs)
    if not (others or twice or survives):
        return
    labels = [Label(c.span, "also read here") for c in others[:1] if c.span is not None]
    built.diagnostics.error(
        "FD311",
        f"`{call.op}` overwrites `{name}` (`{param}`), which is still needed",
        call.span,
        labels=labels,
    )


# --- what is left over -------------------------------------------------------------------------


def unused_result(built: Built) -> None:
    """A named value that neither side needs."""
    needed = _mentioned(built.rule.match) | set(built.rule.kept)
    needed |= {old for old, _ in built.rule.outputs}
    for call in built.rule.match:
        for name in call.results:
            if name is not None and name not in needed and not name.startswith(TEMPORARY):
                built.diagnostics.warning(
                    "FD312",
                    f"`{name}` is matched, but neither side uses it",
                    built.spans.get(name, call.span),
                    help="write `_`, or assign it in `replace` so that it may have other users",
                )


def unused_let(built: Built) -> None:
    for let in built.written.lets:
        if let.name.name not in built.scope.used:
            built.diagnostics.warning("FD313", f"`{let.name.name}` is never used", let.name.span)


def disconnected(built: Built) -> None:
    """Two sources in one rule would fire for every pair of sites."""
    groups: list[set[str]] = []
    for call in built.rule.match:
        tensors = {n for n in reads(call) if n not in built.scope.scalars}
        names_here = tensors | {r for r in call.results if r is not None}
        joined = [g for g in groups if g & names_here]
        groups = [g for g in groups if not g & names_here]
        groups.append(names_here.union(*joined))
    if len(groups) > 1:
        built.diagnostics.error(
            "FD314",
            f"the source of `{built.rule.name}` falls into {len(groups)} parts that share no value",
            built.rule.span,
            help="write one rule for each part",
        )


# --- derived rules -----------------------------------------------------------------------------


def lint_derived(built: Built) -> None:
    """A scalar is read off an argument that it is alone; no equation is solved for it."""
    alone = {name for call in built.rule.match for name in reads(call)}
    alone |= {
        part.expr.id
        for call in built.rule.match
        for part in computed(call)
        if isinstance(part.expr, Name)
    }
    target = built.rule.replace[0].op
    for param in built.rule.params:
        if isinstance(param.type, ScalarType) and param.name not in alone:
            span = built.scope.spans.get(param.name)
            built.diagnostics.error(
                "FD234",
                f"nothing in the meaning of `{target}` says what `{param.name}` is",
                built.rule.span,
                labels=[] if span is None else [Label(span, "it occurs in expressions only")],
                help=f"fix it: `{target}({param.name} = ...)`",
            )


# --- where it runs -----------------------------------------------------------------------------


def nowhere_available(built: Built) -> None:
    """`where` and the availability of the new ops exclude each other on every architecture."""
    conditions = [e for c in built.rule.where for e in conjuncts(c.expr) if _is_about_env(e)]
    for call in built.rule.replace:
        decl = built.signatures.get(call.op)
        if decl is not None:
            conditions.extend(e for c in decl.available for e in conjuncts(c.expr))
    if not conditions or any(_possible(conditions, arch) for arch in _archs(conditions)):
        return
    targets = ", ".join(sorted({f"`{c.op}`" for c in built.rule.replace if _has_limits(built, c)}))
    built.diagnostics.error(
        "FD316",
        f"the rule `{built.rule.name}` fits no target",
        built.rule.span,
        notes=[f"its `where` and the availability of {targets} exclude each other"]
        if targets
        else ["its `where` holds on no architecture"],
    )


def nothing_fits(built: Built) -> None:
    """Conditions that exclude each other."""
    found = contradiction(built.rule)
    if found is None:
        return
    condition, other = found
    labels = []
    if other is not None and other.span is not None:
        labels = [Label(other.span, "excludes it")]
    built.diagnostics.warning(
        "FD406",
        f"`{built.rule.name}` can never fire: its conditions exclude each other",
        condition.span or built.rule.span,
        labels=labels,
        notes=[] if labels else ["no value satisfies this together with the conditions before it"],
    )


def _has_limits(built: Built, call: Call) -> bool:
    decl = built.signatures.get(call.op)
    return decl is not None and bool(decl.available)


def _is_about_env(expr: Expr) -> bool:
    mentioned = names(expr)
    return bool(mentioned) and all(name.startswith("env.") for name in mentioned)


def _archs(conditions: list[Expr]) -> list[str]:
    named = {
        part.value
        for expr in conditions
        if "env.arch" in names(expr)
        for part in _literals(expr)
        if isinstance(part.value, str)
    }
    return sorted({*ARCHS, *named})


def _literals(expr: Expr) -> Iterator[Literal]:
    return (part for part in walk(expr) if isinstance(part, Literal))


def _possible(conditions: list[Expr], arch: str) -> bool:
    scope: dict[str, Value] = dict(Target(arch=arch).known())
    return all(truth(expr, scope).truth is not Truth.FALSE for expr in conditions)


def open_token_bound(built: Built) -> None:
    """A bound that is a number for a target splits the range of token counts; others cannot."""
    for condition in built.rule.where:
        for part in walk(condition.expr):
            found = _open_bound(built, part) if TOKENS in names(part) else None
            if found is not None:
                message, help = found
                built.diagnostics.warning(
                    "FD321",
                    message,
                    condition.span,
                    notes=["so no range of token counts is split there"],
                    help=help,
                )


def _open_bound(built: Built, part: Expr) -> tuple[str, str] | None:
    """What keeps a condition on `tokens` from being a number for a target, and what helps."""
    if isinstance(part, CallExpr) and part.func in built.scope.visible.definitions.predicates:
        message = f"`{part.func}` is asked about one number of `{TOKENS}`, never about a range"
        return message, "ask about sizes and layers, and bound `tokens` by a comparison"
    if not isinstance(part, Binary) or part.op not in _BOUNDS:
        return None
    unknown = [f"`{name}`" for name in sorted(names(part)) if not _is_given(built, name)]
    if unknown:
        message = (
            f"the bound on `{TOKENS}` depends on {' and '.join(unknown)}, which only a graph says"
        )
        return message, "use `H`, `itemsize(D)`, constants and facts such as `model.hidden_size`"
    if _is_linear(built, part):
        return None
    return f"the bound on `{TOKENS}` is not linear in it", "write `tokens * ... <= ...`"


def _is_given(built: Built, name: str) -> bool:
    """Is it known for a target, before there is a graph?"""
    if name == TOKENS or name in MODEL_SIZES or "." in name:
        return True
    return name == MODEL_DTYPE if name in built.scope.dtype_vars else built.scope.is_dtype(name)


def _is_linear(built: Built, part: Binary) -> bool:
    left, right = (built.scope.sizes.of(side) for side in (part.left, part.right))
    if left is None or right is None:
        return False
    difference = left - right
    rest = difference.substitute({TOKENS: 0})
    factor = difference.substitute({TOKENS: 1}) - rest
    return difference == Dim.symbol(TOKENS) * factor + rest


# --- ops ---------------------------------------------------------------------------------------


def unused_parameter(declared: Declared, decl: OpDecl) -> None:
    """A parameter that the meaning does not mention."""
    if decl.means is None or decl.axiom:
        return
    used = set(_steps_mention(decl.means)) | _in_conditions(decl.where)
    for result in decl.results:
        if isinstance(result.type, TensorType):
            used |= {result.type.dtype, *(n for d in result.type.dims for n in names(d))}
    used |= {name for effect in decl.effects for arg in effect.args for name in names(arg)}
    for param in decl.call_params:
        opaque = isinstance(param.type, ScalarType) and param.type.kind == "layer"
        if param.name not in used and not opaque:
            declared.scope.diagnostics.warning(
                "FD313",
                f"`{param.name}` is never used in `means`",
                declared.scope.spans.get(param.name, decl.span),
            )


def meaningless(declared: Declared, decl: OpDecl) -> None:
    """An op of ours that says nowhere what it computes can neither be run nor checked."""
    if not decl.extern and decl.means is None and not decl.axiom:
        declared.scope.diagnostics.warning(
            "FD317",
            f"the op `{decl.name}` has no meaning",
            decl.span,
            help="add `means { ... }`; without it no rule that uses it can be verified",
        )


# --- shared ------------------------------------------------------------------------------------


def _mentioned(calls: tuple[Call, ...]) -> set[str]:
    found: set[str] = set()
    for call in calls:
        found.update(reads(call))
        for scalar in computed(call):
            found |= names(scalar.expr)
    return found


def _steps_mention(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        if isinstance(step, Branch):
            yield from names(step.condition)
            yield from _steps_mention(step.then)
            yield from _steps_mention(step.otherwise)
        else:
            yield from _mentioned((step,))


def _in_conditions(conditions: tuple[Condition, ...]) -> set[str]:
    return {name for condition in conditions for name in names(condition.expr)}


RULE_LINTS: tuple[Lint, ...] = (
    unbound_parameter,
    uninitialised_read,
    dropped_attribute,
    ignored_argument,
    dropped_input,
    mutated_with_reader,
    unused_result,
    unused_let,
    disconnected,
    nowhere_available,
    nothing_fits,
    open_token_bound,
)

OP_LINTS: tuple[Callable[[Declared, OpDecl], None], ...] = (unused_parameter, meaningless)
