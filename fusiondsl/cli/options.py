"""Arguments that several subcommands share, and what they mean."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, TypeAlias

from fusiondsl.facts import parse_fact
from fusiondsl.target import Fact, Target

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console

    Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

SHIPPED = "fusiondsl:"

_ARCH = re.compile(r"gfx[0-9a-f]+")


def common(*formats: str) -> argparse.ArgumentParser:
    """A parent parser: these options may stand before or after the subcommand.

    `formats` are those a subcommand has beside the usual ones.
    """
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = parser.add_argument_group("output")
    group.add_argument("--color", choices=("auto", "always", "never"), help="default: auto")
    choices = ("pretty", "json", *formats)
    group.add_argument("--format", choices=choices, help="default: pretty")
    group.add_argument("--strict", action="store_true", help="warnings count: exit code 1")
    return parser


def console_of(args: argparse.Namespace) -> Console:
    """The console `main` made for this run."""
    console: Console = args.console
    return console


def add_paths(parser: argparse.ArgumentParser, *, artifacts: bool = True) -> None:
    also = ", or one artifact of `fusiondsl compile`" if artifacts else ""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help=f"rule files or directories; `{SHIPPED}` stands for the shipped patterns{also}",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("target", "what is not given is unknown, never assumed")
    group.add_argument("--target", type=_arch, metavar="ARCH", help="GPU, as gfx942 or gfx950")
    group.add_argument("--tp", type=positive, metavar="N", help="tensor-parallel size")
    group.add_argument("--tp-group", metavar="NAME", help="name of its group in graphs, as tp:0")
    group.add_argument(
        "--fact",
        type=_fact,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other fact that conditions name, as env.aiter=true or model.hidden_size=4096",
    )
    group.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="PREDICATE=VALUE",
        help="to an extern predicate, as is_enabled=true or 'fits(l = \"layers.0\", n = 8)=true'",
    )


def target_of(args: argparse.Namespace) -> Target | None:
    """The target the options give, but for its answers; None where they give nothing."""
    if not (args.target or args.tp or args.tp_group or args.fact):
        return None
    return Target(args.target, args.tp, args.tp_group, dict(args.fact))


def _arch(text: str) -> str:
    # ROCm adds features: gfx942:sramecc+:xnack-
    name = text.partition(":")[0]
    if not _ARCH.fullmatch(name):
        raise argparse.ArgumentTypeError(f"`{text}` is no GPU architecture, as gfx950")
    return name


def positive(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a positive integer")
    return int(text)


def _fact(text: str) -> tuple[str, Fact]:
    try:
        return parse_fact(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def token_range(text: str) -> range:
    """`LO:HI`, both included, or one number."""
    low, colon, high = text.partition(":")
    if not colon:
        high = low
    if not (low.isdecimal() and high.isdecimal()) or int(low) > int(high):
        raise argparse.ArgumentTypeError(f"`{text}` is not LO:HI with LO <= HI")
    return range(int(low), int(high) + 1)
