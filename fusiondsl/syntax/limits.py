"""The limits on what is read, in one place; beyond them there is a diagnostic, never a crash."""

from __future__ import annotations

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_NESTING = 64
"""Brackets, blocks, operator chains and YAML collections inside each other.

Code that walks expressions takes up to nine of the thousand frames Python has, a level.
"""
MAX_STATEMENT_TOKENS = 20_000
"""Of one statement, condition or parameter list; generated text without line ends stops here."""
MAX_SYNTAX_ERRORS = 50
"""Per file; reading stops there."""
MAX_INT = 2**63 - 1
