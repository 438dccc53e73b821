"""`fusiondsl plan`: which rules can fire in an engine, for which token counts, and why not."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusiondsl.cli.compile import describe
from fusiondsl.cli.inputs import load_rules
from fusiondsl.cli.options import add_paths, add_target, common, console_of, positive
from fusiondsl.cli.table import table
from fusiondsl.facts import target_with
from fusiondsl.target import Fact

if TYPE_CHECKING:
    from fusiondsl.cli.options import Subparsers
    from fusiondsl.engine.bounds import Span
    from fusiondsl.engine.compile import Compiled

_DTYPES = ("bfloat16", "float16", "float32")
_MAX_TOKENS = 8192
_ANY = "any"


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "plan",
        help="say what rules can do in a vLLM engine",
        description="For a model and a target: the rules that can fire, the token counts they can "
        "fire for, where compile ranges have to end for that, and why the others cannot.",
        parents=[common()],
    )
    add_paths(parser)
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--model", metavar="PATH", help="directory of a model, or its config.json: sizes and dtype"
    )
    group.add_argument("--dtype", choices=_DTYPES, help="dtype of activations, if not the model's")
    group.add_argument(
        "--max-tokens",
        type=positive,
        default=_MAX_TOKENS,
        metavar="N",
        help=f"vLLM's max_num_batched_tokens (default: {_MAX_TOKENS})",
    )
    group.add_argument(
        "--end-points",
        type=_numbers,
        default=(),
        metavar="N[,N]",
        help="end points of compile ranges that the engine has anyway",
    )
    add_target(parser)
    parser.set_defaults(run=run)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(positive(part) for part in text.split(","))


@dataclass(frozen=True)
class _Row:
    rule: str
    eligible: bool
    ranges: list[list[int]]
    """Token counts for which the rule's bounds hold, both ends included."""
    end_points: list[int]
    reason: str
    """Why it cannot fire, or which condition on `tokens` is no number."""


def run(args: argparse.Namespace) -> int:
    rules = load_rules(args)
    from fusiondsl.engine import CompiledRules
    from fusiondsl.engine.bounds import end_points

    target = target_with({**_facts(args), **rules.target.known()})
    compiled = CompiledRules(rules.program, target).compiled
    asked = end_points(compiled, args.max_tokens)
    own = {end for end in args.end_points if 1 < end < args.max_tokens}
    ends = sorted({*own, *(end for end in asked if end > 1), args.max_tokens})
    rows = list(_rows(compiled, args.max_tokens))
    _show(args, rows, ends, describe(target))
    return console_of(args).exit_code()


def _facts(args: argparse.Namespace) -> dict[str, Fact]:
    from fusiondsl.integrations.vllm.model_config import facts_of_model, itemsize_of, read_model

    known: dict[str, Fact] = {
        "env.vllm": True,
        "env.tp_size": 1,
        "env.tp_group": "tp:0",
        "model.max_tokens": args.max_tokens,
    }
    if args.model is not None:
        known.update(facts_of_model(read_model(args.model), args.dtype))
    elif args.dtype is not None:
        known["model.itemsize"] = itemsize_of(args.dtype) or 0
    return known


def _rows(compiled: Compiled, most: int) -> list[_Row]:
    from fusiondsl.engine.bounds import token_spans, unclosed

    refused = {item.rule: item.message for item in compiled.ineligible}
    rows: list[_Row] = []
    for rule in compiled.program.rules:
        if rule.name in refused:
            rows.append(_Row(rule.name, False, [], [], refused[rule.name]))
            continue
        spans = token_spans(rule, compiled, most)
        open_ = [condition.label or "a condition" for condition in unclosed(rule, compiled)]
        reason = f"decided in the graph: {', '.join(open_)}" if open_ else ""
        ends, held = [span.last for span in spans[:-1]], _held(spans)
        if not held:
            reason = "its bounds on `tokens` hold for no number of tokens"
        rows.append(_Row(rule.name, bool(held), held, ends, reason))
    return rows


def _held(spans: tuple[Span, ...]) -> list[list[int]]:
    from fusiondsl.dims import Truth

    return [[span.first, span.last] for span in spans if span.truth is not Truth.FALSE]


def _show(args: argparse.Namespace, rows: list[_Row], ends: list[int], target: str) -> None:
    console = console_of(args)
    headers = ("rule", "can fire", "tokens", "ends ranges at", "why not, or what is left to decide")
    if rows:
        console.print(table(headers, [_cells(row, args.max_tokens) for row in rows]))
        console.print()
    eligible = sum(row.eligible for row in rows)
    console.print(f"{eligible} of {len(rows)} rules can fire for {target}")
    ranges = list(zip([1, *(end + 1 for end in ends)], ends, strict=False))
    shown = ", ".join(f"{first}..{last}" for first, last in ranges)
    console.print(f"compile ranges: {shown}")
    console.add(
        rules=[_data(row) for row in rows],
        end_points=ends[:-1],
        ranges=[list(pair) for pair in ranges],
        max_tokens=args.max_tokens,
    )


def _cells(row: _Row, most: int) -> tuple[str, ...]:
    if not row.eligible:
        return row.rule, "no", "", "", row.reason
    whole = row.ranges == [[1, most]]
    tokens = _ANY if whole else ", ".join(f"{first}..{last}" for first, last in row.ranges)
    ends = ", ".join(map(str, row.end_points))
    return row.rule, "yes", tokens, ends, row.reason


def _data(row: _Row) -> dict[str, Any]:
    return {
        "rule": row.rule,
        "eligible": row.eligible,
        "tokens": row.ranges,
        "end_points": row.end_points,
        "reason": row.reason,
    }
