"""The rules a subcommand works on: rule files, the shipped patterns, or an artifact."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace

from fusiondsl import artifact, ir
from fusiondsl.cli.options import console_of, target_of
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.target import Target


@dataclass(frozen=True)
class Rules:
    program: ir.Program
    target: Target


def load_rules(args: argparse.Namespace) -> Rules:
    """What PATHs and target options of the command line give; prints the warnings."""
    if not any(artifact.is_artifact(path) for path in args.paths):
        return _compiled_now(args)
    if len(args.paths) > 1:
        _refuse("an artifact is given alone: it holds all its rules")
    if target_of(args) is not None or args.answer:
        _refuse("an artifact is compiled for its target: compile the rules again for another one")
    loaded = artifact.load(args.paths[0])
    return Rules(loaded.program, loaded.target)


def _compiled_now(args: argparse.Namespace) -> Rules:
    program, target = load_program(args), target_of(args) or Target()
    if not args.answer:
        return Rules(program, target)
    from fusiondsl.cli.answers import read_answers

    return Rules(program, replace(target, answers=read_answers(args.answer, program)))


def load_program(args: argparse.Namespace) -> ir.Program:
    """The program of rule files and directories; prints the warnings."""
    from fusiondsl.rules import load

    rules = load(*args.paths)
    console_of(args).diagnostics(rules.warnings)
    return rules.program


def refuse_input_as_output(paths: list[str], output: str) -> None:
    """Nothing that was read is written over."""
    # `os.path`, because `Path.resolve` raises where links go in circles.
    if os.path.realpath(output) in map(os.path.realpath, paths):
        _refuse(f"`{output}` is an input; the output would replace it")


def refuse_one_file_for_two(what: str, first: str, second: str) -> None:
    if os.path.realpath(first) == os.path.realpath(second):
        _refuse(f"{what} cannot both be `{second}`")


def _refuse(message: str) -> None:
    diagnostics = Diagnostics()
    diagnostics.error("FD650", message, None)
    raise FusionError(diagnostics, 2)
