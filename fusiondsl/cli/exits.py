"""Exit codes of every subcommand."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    FINDINGS = 1
    """The command ran and found what it looks for: a failed test, a warning with `--strict`."""
    USAGE = 2
    """Wrong arguments, or input that cannot be read."""
    COMPILE = 3
    """The rules do not compile."""
    ENVIRONMENT = 4
    """Something the command requires is not installed or not available."""
    INTERNAL = 101
    """A bug in fusiondsl."""
    INTERRUPTED = 130
    """Stopped with Ctrl-C."""
    BROKEN_PIPE = 141
    """The reader of the output went away."""
