"""Checked rules and their target as a file."""

from __future__ import annotations

from fusiondsl.artifact.format import (
    FORMAT,
    MAX_BYTES,
    SUFFIX,
    VERSION,
    Artifact,
    dumps,
    file_namer,
    identity,
    identity_for,
    is_artifact,
    load,
    loads,
    program_identity,
    replace_file,
    save,
    write_atomically,
)
from fusiondsl.artifact.module import dump_python

__all__ = [
    "FORMAT",
    "MAX_BYTES",
    "SUFFIX",
    "VERSION",
    "Artifact",
    "dump_python",
    "dumps",
    "file_namer",
    "identity",
    "identity_for",
    "is_artifact",
    "load",
    "loads",
    "program_identity",
    "replace_file",
    "save",
    "write_atomically",
]
