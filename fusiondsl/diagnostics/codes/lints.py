"""Codes FD300 to FD399: lints."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {
    "FD301": CodeInfo(
        "a dtype is not constrained as the target needs it",
        "Kernels read memory in the dtype they were written for. A rule that binds, say, an f32 "
        "weight and passes it to a kernel for bf16 weights produces garbage, so equality has to "
        "be stated: one dtype variable for both, or a condition.",
    ),
    "FD302": CodeInfo(
        "a result changes its dtype",
        "What is replaced must have the dtype it had: its users were compiled for it.",
    ),
    "FD303": CodeInfo(
        "an argument has the wrong layout",
        "The parameter declares strides that the value does not have.",
    ),
    "FD304": CodeInfo(
        "a result changes its FP8 flavour",
        "The codes of f8e4m3fn and f8e4m3fnuz mean different numbers.",
    ),
    "FD305": CodeInfo(
        "a result changes its shape",
        "What is replaced must have the shape it had, for all sizes that the rule fits.",
    ),
    "FD306": CodeInfo(
        "a result changes its layout",
        "Kernels that take pointers rely on strides. `allow { relayout: value }` permits others.",
    ),
    "FD307": CodeInfo(
        "uninitialised memory is read",
        "`empty` gives whatever was in memory. A kernel that always adds its residual needs zeros.",
    ),
    "FD308": CodeInfo(
        "an attribute of the source is lost",
        "A scale mode, an epsilon or a group size that the target never hears of changes results "
        "silently. Pass it on, constrain it in `where`, or match one value of it. An argument "
        "`_` matches every value, so it may stand only in a call that `replace` keeps.",
    ),
    "FD309": CodeInfo(
        "an input of the source is lost",
        "The new code does not depend on a tensor that the source depends on.",
    ),
    "FD310": CodeInfo(
        "a parameter that nothing binds",
        "Parameters of a rule are bound by their place in `match`.",
    ),
    "FD311": CodeInfo(
        "an overwritten value is still needed",
        "The call writes into an argument that something else reads. Use its result instead.",
    ),
    "FD312": CodeInfo(
        "a matched value is not used",
        "A value that neither side uses must have no other users in a graph, which is rarely "
        "meant.",
    ),
    "FD313": CodeInfo(
        "never used",
        "A parameter that the meaning of an op does not mention, or a `let` that nothing uses, is "
        "usually a mistake.",
    ),
    "FD314": CodeInfo(
        "a source in parts",
        "The parts of a source have to share a value; unconnected ones would match any pair of "
        "places in a graph.",
    ),
    "FD315": CodeInfo(
        "a difference is not allowed",
        "The target computes something slightly else than the source, as its `differs` says or as "
        "the comparison of both meanings shows. The rule has to allow it by name.",
    ),
    "FD316": CodeInfo(
        "a rule for no target",
        "The conditions of the rule and the availability of the ops it uses never hold together.",
    ),
    "FD317": CodeInfo(
        "an op without a meaning",
        "`means` says what an op computes; without it there is no reference, no proof and no "
        "numeric check. `means axiom` points to a reference in Python.",
    ),
    "FD318": CodeInfo(
        "both sides do not compute the same",
        "With every op replaced by its meaning, the two sides of the rule part at the place shown. "
        "Either the rule or a meaning is wrong; `allow { unproved }` keeps a rule whose sides are "
        "equal for a reason that meanings do not show.",
    ),
    "FD319": CodeInfo(
        "an allowed difference does not occur",
        "Both sides are equal without this difference, and no op or form of the rule names it.",
    ),
    "FD320": CodeInfo(
        "a form is not its op",
        "The body of a form computes something else than the meaning of its op, or differs by "
        "more than its `differs` names.",
    ),
    "FD321": CodeInfo(
        "a bound on tokens that no target closes",
        "A graph is compiled for a range of token counts. Where the bound of a rule is a number "
        "for a target, the range can be split there, and the rule fires in one part of it. That "
        "takes a bound that is linear in `tokens` and otherwise over constants, tables, facts, `H` "
        "(the hidden size of the model) and `itemsize(D)`. Any other bound is decided site by "
        "site, and a range that it divides is left alone.",
    ),
}
