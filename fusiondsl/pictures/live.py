"""A page that grows by a picture with every graph of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import fx

from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.live import Foreign
from fusiondsl.pictures.data import picture_data
from fusiondsl.pictures.page import page_of
from fusiondsl.pictures.picture import Picture, draw
from fusiondsl.pictures.texts import Texts

TITLE = "What a run has compiled"
_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def addition(
    rules: CompiledRules, graph: fx.Graph, name: str, tokens: range | None
) -> Callable[[bytes], bytes]:
    """Makes of a page one with this graph behind the others."""
    picture = draw(rules, graph, name=name, tokens=tokens)
    return lambda before: _extended(before, picture)


def _extended(before: bytes, picture: Picture) -> bytes:
    graphs, texts = _parts(before)
    numbered = replace(picture, name=f"{len(graphs) + 1}. {picture.name}")
    graphs.append(picture_data(numbered, texts))
    return page_of(graphs, texts, TITLE).encode("ascii")


def _parts(page: bytes) -> tuple[list[dict[str, Any]], Texts]:
    """The graphs of a page; what this module would not have written is left alone."""
    if not page:
        return [], Texts()
    graphs, texts = _data(page)
    if page_of(graphs, texts, TITLE).encode("ascii") != page:
        raise Foreign("it is no page that a run of this version has written")
    return graphs, texts


def _data(page: bytes) -> tuple[list[dict[str, Any]], Texts]:
    found = _DATA.search(page.decode("ascii", "replace"))
    try:
        data = json.loads(found[1]) if found is not None else {}
        return data["graphs"], Texts(data["texts"])
    except (ValueError, TypeError, KeyError):
        return [], Texts()
