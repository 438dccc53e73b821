"""Checked rules and their target as a file."""

from __future__ import annotations

from fusiondsl.artifact.format import (
    FORMAT,
    SUFFIX,
    VERSION,
    Artifact,
    dumps,
    identity,
    is_artifact,
    load,
    loads,
    save,
    write_atomically,
)

__all__ = [
    "FORMAT",
    "SUFFIX",
    "VERSION",
    "Artifact",
    "dumps",
    "identity",
    "is_artifact",
    "load",
    "loads",
    "save",
    "write_atomically",
]
