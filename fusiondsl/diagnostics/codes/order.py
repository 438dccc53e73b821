"""Codes FD400 to FD499: the order of rules."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {
    "FD401": CodeInfo(
        "two rules without an order",
        "Rules with equal sources go in this order: the one with more values written out, then "
        "the one with fewer values left over, then the one that fits only where the other does. "
        "Where that does not decide, `before` or `after` has to, unless nothing fits both. The "
        "example is a graph that both fit.",
    ),
    "FD402": CodeInfo(
        "the order runs in a circle",
        "`before` and `after` contradict each other, or they contradict the computed order of "
        "other rules: a rule goes before those whose source its own source contains.",
    ),
    "FD403": CodeInfo(
        "rules rewrite in a circle",
        "What a rule produces may be matched by other rules, but no rule may come back to "
        "something it has rewritten already. An op counts as matched also where it is a form of "
        "an op that the source has. The notes follow the circle.",
    ),
    "FD404": CodeInfo(
        "a rule that can never fire",
        "Another rule goes first and fits wherever this one does: its source is the same or a part "
        "of it, its conditions follow, and it needs no value that this one removes. What a rule "
        "makes is matched by others only afterwards, so a rule may also go first because of that. "
        "The example is a graph that this rule alone would rewrite.",
    ),
    "FD405": CodeInfo(
        "rules overlap, and nothing says which goes first",
        "There is a graph in which either rule may fire, but not both, since they share an op. "
        "Neither source contains the other, and no `before` or `after` puts them in order, so it "
        "is their sizes and their names that decide. Say which one is the better choice there, or "
        "make the conditions exclude each other.\n\n"
        "The example is such a graph, for a target with the facts named above it. `fusiondsl apply "
        "--graph` reads it, also from a file with this very report. Of very many rules not all "
        "pairs are compared; then this is said.",
    ),
    "FD406": CodeInfo(
        "conditions that exclude each other",
        "No sizes, dtypes and facts satisfy all conditions of the rule, so that it never fires.",
    ),
    "FD407": CodeInfo(
        "not everything was compared",
        "Two sources with many equal ops can share them in very many ways, and a set of very many "
        "rules has very many pairs. What was not looked at may hold an overlap without an order, "
        "or a rule that can never fire. A stated order settles a pair.",
    ),
}
