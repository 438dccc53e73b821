"""How a pass uses its rules: which are off, which are required, whether anything is rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.switches import SWITCHES

OFF = "FUSIONDSL_OFF"
REQUIRE = "FUSIONDSL_REQUIRE"
DRY_RUN = "FUSIONDSL_DRY_RUN"


@dataclass(frozen=True)
class Settings:
    """Names of rules may be patterns, as `*_mxfp4*`; one that fits no rule is an error."""

    off: tuple[str, ...] = ()
    """Rules that are left out, as if they were not in the files."""
    require: tuple[str, ...] = ()
    """Rules that must fire in one graph at least."""
    dry_run: bool = False
    """Report what would be rewritten, and leave the graphs alone."""

    @staticmethod
    def of(
        off: Iterable[str] | str = (), require: Iterable[str] | str = (), dry_run: bool = False
    ) -> Settings:
        """One name may stand for itself."""
        return Settings(_names(off), _names(require), dry_run)

    @staticmethod
    def of_environment(environment: Mapping[str, str]) -> Settings:
        """What `FUSIONDSL_OFF`, `FUSIONDSL_REQUIRE` and `FUSIONDSL_DRY_RUN` say."""
        return Settings(
            listed(environment.get(OFF, "")),
            listed(environment.get(REQUIRE, "")),
            _switched_on(DRY_RUN, environment.get(DRY_RUN, "")),
        )

    def __or__(self, other: Settings) -> Settings:
        """Both: what one of them switches off, requires, or only reports."""
        return Settings(
            tuple(dict.fromkeys((*self.off, *other.off))),
            tuple(dict.fromkeys((*self.require, *other.require))),
            self.dry_run or other.dry_run,
        )


def chosen(patterns: Iterable[str], rules: Iterable[str]) -> tuple[str, ...]:
    """The rules that the patterns name, in the order of the rules."""
    known = tuple(rules)
    found: set[str] = set()
    for pattern in patterns:
        fitting = [name for name in known if fnmatchcase(name, pattern)]
        if not fitting:
            raise ValueError(_unknown(pattern, known))
        found.update(fitting)
    return tuple(name for name in known if name in found)


def _unknown(pattern: str, known: tuple[str, ...]) -> str:
    hint = did_you_mean(pattern, known)
    return f"no rule is called `{pattern}`" + (f"; {hint}" if hint else "")


def _names(given: Iterable[str] | str) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def listed(text: str) -> tuple[str, ...]:
    """The names between commas."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _switched_on(name: str, text: str) -> bool:
    if text.lower() not in SWITCHES:
        raise ValueError(f"{name} is `{text}`, which is neither 1 nor 0")
    return SWITCHES[text.lower()]
