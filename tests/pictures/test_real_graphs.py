"""Pages of graphs that people have: all that the text says is there, and each site can be seen."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fusiondsl
from fusiondsl.cli.main import main
from fusiondsl.graphs import read
from fusiondsl.pictures import draw, page
from tests.graphs.test_reader import CASES as GRAPHS
from tests.pictures.browser import chromium
from tests.pictures.samples import held
from tests.pictures.test_browser import Page, window
from tests.why.test_threads import CASES as THREADS
from tests.why.test_threads import FILES as THREAD_FILES
from tests.why.test_threads import parts

__all__ = ["window"]

_CAUSE = re.compile(r"^ +([a-z0-9-]+)(?: \[(\w+)\])?: (.*)$", re.MULTILINE)


def told(causes: list[dict[str, Any]], text: list[str]) -> Iterator[tuple[str, str, str]]:
    """Code, label and message of each cause, inner ones too."""
    for cause in causes:
        label = "" if cause["label"] is None else text[cause["label"]]
        yield cause["code"], label, text[cause["message"]]
        yield from told(cause["because"], text)


@pytest.mark.parametrize("file", THREAD_FILES, ids=lambda file: file.stem)
def test_what_the_text_says_is_on_the_page(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, command, graph, expected = parts(file)
    monkeypatch.chdir(tmp_path)
    shutil.copy(THREADS / "pack.fuse", tmp_path)
    Path("graph.txt").write_text(graph, encoding="utf-8")
    assert main([*command.split(), "--html", "page.html"]) == 0
    data = held(Path("page.html").read_text())
    text = data["texts"]
    found = set()
    for rule in data["graphs"][0]["rules"]:
        found |= set(told(rule["causes"], text))
        for site in rule["sites"]:
            found |= set(told(site["causes"], text))
    assert set(_CAUSE.findall(expected)) <= found
    for edit in re.findall(r"^    fires with (.*)$", expected, re.MULTILINE):
        shown = [
            " and ".join(
                text[said] + ("" if place is None else f" ({text[place]})")
                for said, place in site["edits"]
            )
            for rule in data["graphs"][0]["rules"]
            for site in rule["sites"]
        ]
        assert edit in shown


_OPEN = """
  const choice = half("graph");
  choice.selectedIndex = INDEX;
  choice.dispatchEvent(new Event("change"));
  const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", {key}));
  const found = [];
"""
_LOOK = f"""(() => {{ {_OPEN}
  for (const key of ["1", "2", "3"]) {{
    press(key);
    for (const id of ["before", "after"]) {{
      found.push([key, id, overlapping(id), sticking(id), all(`#${{id}} .node`).length]);
    }}
  }}
  return found;
}})()"""
_SITES = f"""(() => {{ {_OPEN}
  const here = () => document.querySelector("tr.site[aria-selected=true]")?.dataset.site;
  for (let last; here() !== last; ) {{
    last = here();
    const drawn = ["before", "after"].map((id) => inView(id).length);
    const chosen = ["before", "after"].map((id) => all(`#${{id}} .blob.chosen rect`).length);
    found.push([selected(), rows().length, ...drawn, ...chosen]);
    press("j");
  }}
  return found;
}})()"""


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")
def test_every_graph_and_every_site_can_be_looked_at(window: Page) -> None:
    compiled = fusiondsl.load("fusiondsl:").compile(fusiondsl.Target("gfx950"))
    files = sorted(GRAPHS.glob("*.txt"))
    graphs = [graph for file in files for graph in read(file, program=compiled.program)]
    made = [
        draw(compiled, graph.gm, name=file.stem) for file, graph in zip(files, graphs, strict=True)
    ]
    window.open(page(made))
    data = held(window.path.read_text())["graphs"]
    for index, (file, graph) in enumerate(zip(files, data, strict=True)):
        for key, half, overlapping, sticking, nodes in window.ask(at(_LOOK, index)):
            assert (overlapping, sticking) == (0, 0), (file.name, key, half)
            assert nodes > 0, (file.name, key, half)
        looked = window.ask(at(_SITES, index))
        assert bool(looked) == any(rule["sites"] for rule in graph["rules"]), file.name
        for site, rows, before, after, *chosen in looked:
            assert rows == len(looked), file.name
            assert min(before, after) > 0, (file.name, site)
            assert min(chosen) > 0, (file.name, site)
    window.close()


def at(script: str, index: int) -> str:
    return script.replace("INDEX", str(index))
