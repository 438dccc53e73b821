"""Codes FD500 to FD599: targets, environment and compiling."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {}
