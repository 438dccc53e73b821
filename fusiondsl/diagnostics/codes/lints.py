"""Codes FD300 to FD399: lints."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {}
