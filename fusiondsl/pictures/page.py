"""Pictures as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import fusiondsl
from fusiondsl.diagnostics.escape import escaped
from fusiondsl.pictures.data import picture_data
from fusiondsl.pictures.picture import Picture
from fusiondsl.pictures.texts import Texts

HERE = Path(__file__).resolve().parent
LAYOUT = HERE / "vendor" / "dagre.min.js"
"""The layout library as its authors publish it."""
LAYOUT_LICENCE = HERE / "vendor" / "dagre.LICENSE.txt"
SCRIPTS = ("model", "panes", "draw", "list", "main")
"""Parts of the page's script, in order."""

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_COMMENTS_AT_END = re.compile(r"\n(?:/\*! For license[^\n]*\*/|//# sourceMappingURL=[^\n]*)")
_HTML_SIGNS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def page(pictures: Iterable[Picture], *, title: str = "fusiondsl") -> str:
    """The page, in ASCII: the same pictures give the same text. It asks nothing of a network."""
    texts = Texts()
    graphs = [picture_data(picture, texts) for picture in pictures]
    if not graphs:
        raise ValueError("a page needs a picture")
    return page_of(graphs, texts, title)


def page_of(graphs: Sequence[dict[str, Any]], texts: Texts, title: str) -> str:
    """The page of pictures that are data already."""
    data = {"graphs": graphs, "texts": texts.all(), "version": fusiondsl.__version__}
    style, layout, script = _file("page.css"), _layout(), _script()
    slots = {
        "policy": _policy(style, layout, script),
        "title": _markup(title),
        "style": style,
        "layout": layout,
        "data": _json(data),
        "script": script,
    }
    return _SLOT.sub(lambda slot: slots[slot[1]], _file("page.html"))


def _markup(text: str) -> str:
    shown = html.escape(escaped(text))
    return shown.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _json(data: object) -> str:
    """JSON that no HTML parser takes for markup; all signs beyond ASCII are escaped."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return re.sub("[<>&]", lambda sign: _HTML_SIGNS[sign[0]], text)


def _policy(style: str, *scripts: str) -> str:
    """A content security policy: only what stands in the page runs, and nothing is fetched."""
    allowed = " ".join(f"'{_digest(script)}'" for script in scripts)
    return f"default-src 'none'; script-src {allowed}; style-src '{_digest(style)}'; img-src data:"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _script() -> str:
    parts = "\n".join(_file(f"{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def _layout() -> str:
    """The library under its licence, without references to files that stood beside it."""
    licence, code = LAYOUT_LICENCE.read_text("ascii"), LAYOUT.read_text("ascii")
    return licence + _COMMENTS_AT_END.sub("", code)


@cache
def _file(name: str) -> str:
    return (HERE / "web" / name).read_text("ascii")
