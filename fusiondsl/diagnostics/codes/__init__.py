"""Every diagnostic code, one file a range; `fusiondsl explain FD###` prints an entry."""

from __future__ import annotations

from fusiondsl.diagnostics.codes import (
    artifact,
    graphs,
    lints,
    names,
    order,
    syntax,
    target,
    types,
    vllm,
)
from fusiondsl.diagnostics.codes.info import CodeInfo
from fusiondsl.diagnostics.codes.syntax import UNREADABLE

CODES: dict[str, CodeInfo] = {
    **syntax.CODES,
    **names.CODES,
    **types.CODES,
    **lints.CODES,
    **order.CODES,
    **target.CODES,
    **graphs.CODES,
    **artifact.CODES,
    **vllm.CODES,
}

__all__ = ["CODES", "UNREADABLE", "CodeInfo"]
