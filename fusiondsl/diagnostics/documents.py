"""The version of all JSON documents that are meant for other programs."""

from __future__ import annotations

JSON_VERSION = 1
"""Of the documents' shape: parts may be added, but none goes or changes within a version."""
