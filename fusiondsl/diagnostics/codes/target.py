"""Codes FD500 to FD599: targets, environment and compiling."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {
    "FD501": CodeInfo(
        "an op is registered with another declaration",
        "Ops become torch ops once a process, under their name. A second declaration of the same "
        "name with another signature, meaning, condition or kernel cannot take its place. Rename "
        "one of the ops, or start a new process.",
    ),
}
