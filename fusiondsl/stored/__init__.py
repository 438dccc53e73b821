"""Checked rules in a directory, for later processes that read the same text.

Importing this imports nothing that reads or checks text: where the rules are there, nothing has to.
"""

from __future__ import annotations

from fusiondsl.stored.place import DIRECTORY, SWITCH
from fusiondsl.stored.reading import Reading
from fusiondsl.stored.store import Stored, find, keep

__all__ = ["DIRECTORY", "SWITCH", "Reading", "Stored", "find", "keep"]
