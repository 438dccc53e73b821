"""Codes FD400 to FD499: the order of rules."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {
    "FD401": CodeInfo(
        "two rules without an order",
        "Rules with equal sources go in this order: fewer values left over first, then the one "
        "with more conditions. Where that does not decide, `before` or `after` has to, unless "
        "their conditions exclude each other.",
    ),
    "FD402": CodeInfo(
        "the order runs in a circle",
        "`before` and `after` contradict each other, or the computed order: a rule goes before "
        "those whose source its own source contains.",
    ),
    "FD403": CodeInfo(
        "rules rewrite in a circle",
        "What a rule produces may be matched by other rules, but no rule may come back to "
        "something it has rewritten already.",
    ),
    "FD404": CodeInfo(
        "a rule that can never fire",
        "Another rule goes first and fits wherever this one does.",
    ),
}
