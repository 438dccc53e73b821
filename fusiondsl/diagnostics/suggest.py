"""`did you mean`: the known name nearest to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_CANDIDATES = 2_000
"""Beyond so many known names only those with the same first letter are compared."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    names = sorted(known)
    if len(names) > _CANDIDATES:
        names = [other for other in names if other[:1] == name[:1]][:_CANDIDATES]
    found = get_close_matches(name, names, n=1, cutoff=0.6)
    return found[0] if found else _by_last_part(name, names)


def _by_last_part(name: str, names: list[str]) -> str | None:
    """`rms_norm` for `vllm_ir.rms_norm`: only the namespace is missing or wrong."""
    last = name.rpartition(".")[2]
    same = [other for other in names if other.rpartition(".")[2] == last]
    return same[0] if same else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    found = nearest(name, known)
    return f"did you mean `{found}`?" if found else None
