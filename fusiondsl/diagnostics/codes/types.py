"""Codes FD200 to FD299: types, shapes, dtypes and arity."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {}
