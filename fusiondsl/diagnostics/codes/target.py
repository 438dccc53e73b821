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
    "FD514": CodeInfo(
        "a function of AITER does not take what `impl` passes",
        "The source of AITER defines the function with other parameters than the clause counts on: "
        "one is missing, renamed, moved, new without a default, or has another default. Change the "
        "clause, or use a version of AITER that fits.",
    ),
    "FD515": CodeInfo(
        "AITER has no function that `impl` calls",
        "Neither the module nor a module it imports from defines the function. It may be newer or "
        "older than this version of AITER, or have moved.",
    ),
    "FD516": CodeInfo(
        "what AITER has under a name cannot be told from its source",
        "The file cannot be parsed, or the name is bound to something other than a function, an "
        "import from AITER, or another name. So it is not known whether the call fits.",
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
