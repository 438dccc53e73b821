"""Pages of graphs that people have: all that the text says is there, and each site can be seen."""

from __future__ import annotations

import re
import shutil
from collections import Counter
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


_LOOK = """(() => {
  const found = [];
  const choice = half("graph");
  for (let i = 0; i < choice.length; i += 1) {
    choice.selectedIndex = i;
    choice.dispatchEvent(new Event("change"));
    for (const key of ["1", "2", "3"]) {
      document.dispatchEvent(new KeyboardEvent("keydown", {key}));
      for (const id of ["before", "after"]) {
        found.push([i, key, id, overlapping(id), sticking(id), all(`#${id} .node`).length]);
      }
    }
  }
  return found;
})()"""

_SITES = """(() => {
  const choice = half("graph");
  const found = [];
  const here = () => document.querySelector("tr.site[aria-selected=true]")?.dataset.site;
  for (let i = 0; i < choice.length; i += 1) {
    choice.selectedIndex = i;
    choice.dispatchEvent(new Event("change"));
    for (let last; here() !== last; ) {
      last = here();
      const drawn = ["before", "after"].map((id) => inView(id).length);
      const chosen = ["before", "after"].map((id) => all(`#${id} .blob.chosen rect`).length);
      found.push([i, selected(), rows().length, ...drawn, ...chosen]);
      document.dispatchEvent(new KeyboardEvent("keydown", {key: "j"}));
    }
  }
  return found;
})()"""


@pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")
def test_every_graph_and_every_site_can_be_looked_at(window: Page) -> None:
    compiled = fusiondsl.load("fusiondsl:").compile(fusiondsl.Target("gfx950"))
    files = sorted(GRAPHS.glob("*.txt"))
    graphs = [graph for file in files for graph in read(file, program=compiled.program)]
    made = [
        draw(compiled, graph.gm, name=file.stem) for file, graph in zip(files, graphs, strict=True)
    ]
    window.open(page(made))
    for graph, key, half, overlapping, sticking, nodes in window.ask(_LOOK):
        where = (files[graph].name, key, half)
        assert (overlapping, sticking) == (0, 0), where
        assert nodes > 0, where
    looked = window.ask(_SITES)
    graphs_data = held(window.path.read_text())["graphs"]
    with_sites = {i for i, g in enumerate(graphs_data) if any(r["sites"] for r in g["rules"])}
    visited = Counter(graph for graph, *_ in looked)
    assert visited.keys() == with_sites
    assert visited == {graph: rows for graph, _, rows, *_ in looked}
    for graph, site, _, before, after, *chosen in looked:
        assert min(before, after) > 0, (files[graph].name, site)
        assert min(chosen) > 0, (files[graph].name, site)
    window.close()
