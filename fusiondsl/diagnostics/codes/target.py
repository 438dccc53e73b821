"""Codes FD500 to FD599: targets, environment and compiling."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {
    "FD501": CodeInfo(
        "an op is registered with another declaration",
        "Ops become torch ops once a process, under their name. A second declaration of the same "
        "name with another signature, meaning, condition or kernel cannot take its place. Rename "
        "one of the ops, or start a new process.",
    ),
    "FD510": CodeInfo(
        "an installed op has another schema than is declared",
        "An `extern op` is a snapshot of a torch op's schema. Another version of its library may "
        "have renamed, moved or added arguments; then calls in graphs no longer fit.",
    ),
    "FD511": CodeInfo(
        "the fake of an installed op does not take what a rule passes",
        "Graphs with such an op cannot be compiled. Some fakes have other parameters than the op "
        "itself, or raise when an optional argument is given.",
    ),
    "FD512": CodeInfo(
        "a rule does not match its own source",
        "The graph that the rule's `match` describes is not recognised by the engine, so the rule "
        "fires nowhere.",
    ),
    "FD513": CodeInfo(
        "an installed kernel does not take what `impl` passes",
        "The torch op that an `impl` clause names has other arguments than the clause gives.",
    ),
    "FD520": CodeInfo(
        "an answer to a question that nobody asks",
        "`--answer` names an `extern predicate` that the rule files do not declare.",
    ),
    "FD521": CodeInfo(
        "an answer does not fit its question",
        "An answer is `name = true` for any arguments, or `name(argument = value, ..) = true` with "
        "a constant for each parameter of the predicate: a number, a text, a dtype, or the name of "
        "a layer in quotes.",
    ),
}
