"""`fusiondsl plan`: which rules can fire in an engine, for which token counts, and why not."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fusiondsl.artifact import is_artifact
from fusiondsl.cli.compile import describe
from fusiondsl.cli.inputs import load_rules
from fusiondsl.cli.options import add_paths, add_target, common, console_of, positive
from fusiondsl.cli.table import table
from fusiondsl.facts import target_with
from fusiondsl.target import Fact

if TYPE_CHECKING:
    from fusiondsl import ir
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
    group.add_argument(
        "--draft-model",
        metavar="PATH",
        help="the same of a draft model that runs as it is (vLLM's method draft_model)",
    )
    group.add_argument(
        "--pp", type=positive, default=1, metavar="N", help="pipeline-parallel size (default: 1)"
    )
    group.add_argument(
        "--dp", type=positive, default=1, metavar="N", help="data-parallel size (default: 1)"
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
    group.add_argument(
        "--graph-partition",
        action="store_true",
        help="Inductor cuts the graphs (use_inductor_graph_partition): attention is in them",
    )
    group.add_argument(
        "--quantization",
        metavar="METHOD",
        help="how the engine quantises, if not as the model says",
    )
    group.add_argument(
        "--kv-cache-dtype", default="auto", metavar="DTYPE", help="as vLLM has it (default: auto)"
    )
    group.add_argument(
        "--custom-ops",
        metavar="NAME[,NAME]",
        type=_custom_ops,
        help="vLLM's custom_ops, as none,+rotary_embedding; without it they are not known",
    )
    add_target(parser)
    parser.set_defaults(run=run)


def _custom_ops(text: str) -> tuple[str, ...]:
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    if sum(name in ("all", "none") for name in names) != 1:
        raise argparse.ArgumentTypeError(f"`{text}` has to name `all` or `none`, as vLLM wants")
    for name in names:
        if name not in ("all", "none") and name[0] not in "+-":
            raise argparse.ArgumentTypeError(f"`{name}` is neither +{name} nor -{name}")
    return names


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(positive(part) for part in text.split(","))


@dataclass(frozen=True)
class _Row:
    rule: str
    state: str
    ranges: list[list[int]]
    """Token counts for which the rule's bounds hold, both ends included."""
    end_points: list[int]
    """Those that the engine gets because of the rule."""
    left_out: list[int]
    """Those that its bounds have and the engine does not get."""
    reason: str
    """Why it cannot fire, or what is still to be decided."""
    told_by: tuple[str, ...] = ()
    """Options that would tell what is not known."""

    @property
    def why_end_points(self) -> str:
        """Why they are in, or left out."""
        if self.left_out:
            return f"out: {self.reason}"
        return "in: nothing known rules a site out" if self.end_points else ""


_YES, _NO, _NO_SITE, _OPEN, _UNKNOWN = "yes", "no", "no site", "open", "unknown"
"""It can fire; the target or its bounds forbid it; the engine's graphs have nothing for it; it
depends on what only an engine's process has; it depends on a fact that was not given."""

_ANSWER, _MODEL = "--answer", "--model"
_TELLS = {
    "env.arch": "--target",
    "env.mx": "--target",
    "env.tp_group": "--tp-group",
    "env.tp_size": "--tp",
    "model.hidden_size": _MODEL,
    "model.intermediate_size": _MODEL,
    "model.itemsize": _MODEL,
}
"""Options by what they tell of; `--fact` tells of any other."""


def run(args: argparse.Namespace) -> int:
    rules = load_rules(args)
    from fusiondsl.engine import CompiledRules
    from fusiondsl.engine.prospects import without_prospects
    from fusiondsl.integrations.vllm.model_config import engine_of_model
    from fusiondsl.integrations.vllm.outlook import CUT, PLAIN_CACHES, surroundings_of

    model, draft = _model(args, args.model), _model(args, args.draft_model)
    facts = {**_facts(args, model or {}, draft), **rules.target.known()}
    target = replace(target_with(facts), answers=rules.target.answers)
    compiled = CompiledRules(rules.program, target).compiled
    engine = replace(
        engine_of_model(model or {}, facts, args.dtype, draft=draft, groups=args.pp * args.dp),
        cut=() if args.graph_partition else CUT,
        rotary=_is_rotary(args.custom_ops),
    )
    if args.quantization is not None or args.kv_cache_dtype not in PLAIN_CACHES:
        engine = replace(engine, quantised=True)
    no_site = without_prospects(compiled, surroundings_of(engine))
    rows = list(_rows(compiled, args.max_tokens, no_site))
    if any(map(is_artifact, args.paths)):
        rows = [replace(row, told_by=tuple(map(_when_compiled, row.told_by))) for row in rows]
    own = {end for end in args.end_points if 1 < end < args.max_tokens}
    asked = {end for row in rows for end in row.end_points}
    _show(args, rows, sorted({*own, *asked, args.max_tokens}), describe(target))
    _say_what_is_not_known(args, rows)
    _say_what_is_assumed(args, engine.architectures)
    return console_of(args).exit_code()


def _model(args: argparse.Namespace, path: str | None) -> dict[str, Any] | None:
    from fusiondsl.integrations.vllm.model_config import check_model, read_model

    if path is None:
        return None
    model = read_model(path)
    check_model(model, args.tp or 1)
    return model.config


def _when_compiled(option: str) -> str:
    """An artifact has its target, but for what is said of the model."""
    return option if option == _MODEL else f"`fusiondsl compile` with {option}"


def _say_what_is_not_known(args: argparse.Namespace, rows: list[_Row]) -> None:
    open_ = [row for row in rows if row.state == _UNKNOWN]
    if open_:
        telling = sorted({option for row in open_ for option in row.told_by})
        console_of(args).print(
            f"{len(open_)} more may, or may not: {', '.join(telling)} would tell"
        )


def _say_what_is_assumed(args: argparse.Namespace, architectures: tuple[str, ...]) -> None:
    from fusiondsl.integrations.vllm.outlook import MODELS

    known = bool(architectures) and MODELS.keys() >= set(architectures)
    console_of(args).add(known_model=known)
    if args.draft_model is not None:
        console_of(args).print(
            "the draft model is taken as it is: vLLM makes others of those for EAGLE, Medusa, MTP"
        )
    if args.model is None or known:
        return
    which = ", ".join(architectures) or "a model without `architectures`"
    console_of(args).print(f"nothing is assumed of {which}: any rule may have a site")


def _is_rotary(custom_ops: tuple[str, ...] | None) -> bool | None:
    """Rotary embeddings are custom ops in the engine; None where that is not known."""
    if custom_ops is None:
        return None
    named = "rotary_embedding"
    return f"-{named}" not in custom_ops if "all" in custom_ops else f"+{named}" in custom_ops


def _facts(
    args: argparse.Namespace, model: dict[str, Any], draft: dict[str, Any] | None
) -> dict[str, Fact]:
    from fusiondsl.integrations.vllm.model_config import facts_of_model, itemsize_of

    known: dict[str, Fact] = {
        "env.vllm": True,
        "env.tp_size": 1,
        "env.tp_group": "tp:0",
        "model.max_tokens": args.max_tokens,
    }
    if args.model is not None:
        known.update(facts_of_model(model, args.dtype, draft))
    elif args.dtype is not None:
        known["model.itemsize"] = itemsize_of(args.dtype) or 0
    return known


def _rows(compiled: Compiled, most: int, no_site: dict[str, str]) -> Iterator[_Row]:
    from fusiondsl.engine.bounds import pending, refusals, token_spans

    refused, waiting = refusals(compiled), pending(compiled)
    for rule in compiled.program.rules:
        name = rule.name
        lacking = refused[name].lacking if name in refused and name not in waiting else ()
        if name in refused and name not in waiting and not lacking:
            yield _Row(name, _NO, [], [], [], refused[name].reason)
            continue
        spans = token_spans(rule, compiled, most)
        held, ends = _held(spans), [span.last for span in spans[:-1] if span.last > 1]
        if not held:
            yield _Row(
                name, _NO, [], ends, [], "its bounds on `tokens` hold for no number of tokens"
            )
        elif name in no_site:
            yield _Row(name, _NO_SITE, held, [], ends, no_site[name])
        elif lacking:
            yield _Row(name, _UNKNOWN, held, [], ends, refused[name].reason, _told_by(lacking))
        elif name in waiting:
            told_by = (_ANSWER,) if refused[name].asked else ()
            yield _Row(name, _OPEN, held, ends, [], waiting[name], told_by)
        else:
            yield _Row(name, _YES, held, ends, [], *_open(rule, compiled))


def _open(rule: ir.Rule, compiled: Compiled) -> tuple[str, tuple[str, ...]]:
    """What graphs decide of a rule that can fire, and options that would tell of it."""
    from fusiondsl.engine.bounds import asked_of_layers, unclosed, unknown_sizes

    conditions, asked = unclosed(rule, compiled), asked_of_layers(rule, compiled)
    labels = ", ".join(condition.label or "a condition" for condition in conditions)
    reasons = [f"decided in the graph: {labels}"] if conditions else []
    reasons += [f"asked of layers: {', '.join(asked)}"] if asked else []
    lacking = sorted({fact for one in conditions for fact in unknown_sizes(one, compiled)})
    return "; ".join(reasons), (*_told_by(lacking), *([_ANSWER] if asked else ()))


def _told_by(facts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_TELLS.get(fact, f"--fact {fact}=...") for fact in facts))


def _held(spans: tuple[Span, ...]) -> list[list[int]]:
    from fusiondsl.dims import Truth

    return [[span.first, span.last] for span in spans if span.truth is not Truth.FALSE]


def _show(args: argparse.Namespace, rows: list[_Row], ends: list[int], target: str) -> None:
    console = console_of(args)
    headers = ("rule", "can fire", "tokens", "ends ranges at", "why not, or what is left to decide")
    if rows:
        console.print(table(headers, [_cells(row, args.max_tokens) for row in rows]))
        console.print()
    eligible = sum(row.state in (_YES, _OPEN) for row in rows)
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
    whole = row.ranges == [[1, most]]
    tokens = _ANY if whole else ", ".join(f"{first}..{last}" for first, last in row.ranges)
    ends = ", ".join(map(str, row.end_points))
    told = f" ({', '.join(row.told_by)} would tell)" if row.told_by else ""
    return row.rule, row.state, tokens if row.state != _NO else "", ends, row.reason + told


def _data(row: _Row) -> dict[str, Any]:
    return {
        "rule": row.rule,
        "eligible": row.state in (_YES, _OPEN),
        "state": row.state,
        "tokens": row.ranges,
        "end_points": row.end_points,
        "left_out": row.left_out,
        "why_end_points": row.why_end_points,
        "reason": row.reason,
        "told_by": list(row.told_by),
    }
