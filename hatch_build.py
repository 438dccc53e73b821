"""Makes the parser's tables before a wheel is built or the checkout is installed."""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class TablesHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        try:
            from fusiondsl.syntax import tables
        finally:
            sys.path.remove(self.root)
        tables.write()
