"""What came of the rules in one start of an engine: graph by graph, and in one line."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.engine.report import Report
from fusiondsl.engine.settings import chosen
from fusiondsl.integrations.vllm.log import log

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from fusiondsl.integrations.vllm.passes import VllmFusionPass

_MOST_REASONS = 3


@dataclass(frozen=True)
class Piece:
    """One compiled graph."""

    index: int
    """Of the graphs of this start, in the order in which they were compiled."""
    tokens: tuple[int, int] | None
    """The compile range, both ends included."""
    fired: Mapping[str, int]
    """Rewritten sites by rule; in a dry run those that would have been."""
    refused: tuple[str, ...]
    nodes: tuple[int, int]
    """Before and after."""
    seconds: float
    """CPU time of matching and rewriting."""


@dataclass
class Start:
    """One start of an engine, on one rank."""

    rank: int = 0
    pieces: list[Piece] = field(default_factory=list)
    from_cache: bool = False
    """No pass has run: the graphs came from vLLM's cache, and the pieces from an earlier start."""
    kept_in: Path | None = None
    """Where the pieces are kept for later starts; None where nothing is cached."""

    @property
    def counts(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for piece in self.pieces:
            total.update(piece.fired)
        return dict(sorted(total.items()))


_current = Start()


def last_start() -> Start:
    """The last start of an engine in this process."""
    return _current


def begin(rank: int) -> None:
    global _current
    _current = Start(rank)


def add(report: Report, tokens: range | None, seconds: float) -> None:
    piece = Piece(
        len(_current.pieces),
        None if tokens is None else (tokens.start, tokens.stop - 1),
        dict(report.counts),
        tuple(str(refusal) for refusal in report.close()),
        (report.nodes_before, report.nodes_after),
        round(seconds, 6),
    )
    _current.pieces.append(piece)
    log().debug("graph %d, tokens %s: %s", piece.index, piece.tokens, report)
    # Another process can have the graph as soon as Inductor has it.
    if _current.kept_in is not None and len(_kept()) < len(_current.pieces):
        _keep()


# --- the end of a start --------------------------------------------------------------------------


def finish(ready: VllmFusionPass, config: VllmConfig) -> None:
    """Says in a line what the rules did on the first rank."""
    _exchange()
    if _current.rank == 0:
        log().info("%s", summary(ready, config))


def summary(ready: VllmFusionPass, config: VllmConfig) -> str:
    compiled = ready.rules.compiled
    counts = _current.counts
    sites = sum(counts.values())
    verb = "would rewrite" if ready.settings.dry_run else "rewrote"
    which = ", ".join(f"{rule} {count}" for rule, count in counts.items())
    ends = config.compilation_config.compile_ranges_endpoints
    cached = " (from vLLM's cache)" if _current.from_cache else ""
    if not _current.pieces:
        what = "the graphs came from a cache that has no report of them"
    else:
        graphs = len(_current.pieces)
        what = f"{verb} {sites} sites in {graphs} graphs{cached}" + (f": {which}" if which else "")
    total = len(ready.program.rules)
    return f"fusiondsl: {what}; {len(compiled.rules)} of {total} rules can fire; ranges end {ends}"


def require(
    ready: VllmFusionPass, fired: Collection[str], no_site: Mapping[str, str] | None = None
) -> None:
    """Raises where a required rule has not fired on any rank; `fired` are those that have.

    `no_site` says of rules why the engine's graphs have nothing for them.
    """
    spans = {rule.name: rule.span for rule in ready.program.rules}
    diagnostics = Diagnostics()
    for name in _required(ready):
        if name not in fired:
            message = f"the rule `{name}` is required and did not fire in any graph"
            reasons = _reasons(name, ready, no_site or {})
            diagnostics.error("FD721", message, spans[name], notes=reasons)
    if diagnostics.has_errors:
        raise FusionError(diagnostics)


def _required(ready: VllmFusionPass) -> tuple[str, ...]:
    named = chosen(ready.settings.require, [rule.name for rule in ready.program.rules])
    if not ready.settings.strict:
        return named
    return tuple(dict.fromkeys((*named, *[rule.name for rule in ready.rules.compiled.rules])))


def _reasons(rule: str, ready: VllmFusionPass, no_site: Mapping[str, str]) -> Iterable[str]:
    for item in ready.rules.compiled.ineligible:
        if item.rule == rule:
            return (item.message,)
    if rule not in [one.name for one in ready.rules.program.rules]:
        return ("it is switched off",)
    if not _current.pieces:
        return ("no pass has run: the graphs came from a cache that has no report of them",)
    said = dict.fromkeys(
        refusal.removeprefix(f"{rule} ")
        for piece in _current.pieces
        for refusal in piece.refused
        if refusal.startswith(f"{rule} at ")
    )
    reasons = list(said)[:_MOST_REASONS]
    if not reasons and rule in no_site:
        return (f"no graph of this engine has a site for it: {no_site[rule]}",)
    return reasons or (f"nothing like it stands in any of the {len(_current.pieces)} graphs",)


# --- reports of graphs that come from the cache --------------------------------------------------


def keep(ready: VllmFusionPass, config: VllmConfig) -> None:
    """Says where pieces are kept: the model is loaded, and no graph has been compiled."""
    from vllm import envs

    if envs.VLLM_DISABLE_COMPILE_CACHE:
        return
    key = hashlib.sha256(f"{config.compute_hash()} {ready.uuid()}".encode()).hexdigest()[:16]
    name = f"{key}.rank{_current.rank}.json"
    _current.kept_in = Path(envs.VLLM_CACHE_ROOT) / "fusiondsl" / name


def _exchange() -> None:
    """Keeps the reports of this start, or takes those of the start that filled the cache."""
    kept = _kept()
    if len(kept) > len(_current.pieces):
        _current.from_cache = not _current.pieces
        _current.pieces[:] = kept
    elif _current.pieces:
        _keep()


def _keep() -> None:
    path = _current.kept_in
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps([asdict(piece) for piece in _current.pieces]))
        partial.replace(path)
    except OSError as error:
        log().warning("cannot keep the reports of the graphs in %s: %s", path, error.strerror)
        _current.kept_in = None  # and say so once


def _kept() -> list[Piece]:
    path = _current.kept_in
    if path is None:
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [_piece(row) for row in rows]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        log().warning("cannot read the reports of the graphs in %s: %s", path, error)
        return []


def _piece(row: dict[str, Any]) -> Piece:
    tokens = None if row["tokens"] is None else tuple(row["tokens"])
    refused, nodes = tuple(row["refused"]), tuple(row["nodes"])
    return Piece(**{**row, "tokens": tokens, "refused": refused, "nodes": nodes})
