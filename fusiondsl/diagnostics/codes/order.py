"""Codes FD400 to FD499: the order of rules."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {}
