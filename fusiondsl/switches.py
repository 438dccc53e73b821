"""What variables of the environment that switch something may say."""

from __future__ import annotations

from collections.abc import Mapping

SWITCHES: Mapping[str, bool] = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("", "0", "false", "no", "off"), False),
}
"""In lower case."""
