"""Codes FD100 to FD199: names, imports and duplicate definitions."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {}
