"""What a person sees: the page opened in a headless Chromium, hovered, clicked and typed at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusiondsl.pictures import page
from tests.pictures.browser import Browser, browser, chromium
from tests.pictures.samples import EVIL, HOSTILE, LAYERS, RULES, decoder, layers, picture, write

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")

OPENS = 15.0
"""Seconds in which a page with 5,000 nodes is drawn."""
ACTS = 5.0
"""Seconds in which it follows a click or a key."""

_TOOLS = (Path(__file__).parent / "tools.js").read_text()


class Page:
    """An open page with what tests ask of it."""

    def __init__(self, shown: Browser, path: Path) -> None:
        self.browser = shown
        self.path = path

    def open(self, text: str, **size: int) -> Page:
        self.browser.requests.clear()
        self.browser.complaints.clear()
        self.browser.open(write(self.path, text), **size)
        return self

    def ask(self, expression: str) -> Any:
        return self.browser.evaluate(f"(() => {{ {_TOOLS} return {expression}; }})()")

    def click(self, element: str) -> None:
        self.browser.click(*self.ask(f"middle({element})"))

    def hover(self, element: str) -> str:
        self.browser.move(*self.ask(f"middle({element})"))
        return str(self.ask("half('card').hidden ? '' : half('card').innerText"))

    def names(self, half: str) -> set[str]:
        """Nodes in view."""
        return set(self.ask(f"inView('{half}')"))

    def close(self) -> None:
        """Nothing was asked of a network and nothing went wrong."""
        assert self.browser.complaints == []
        assert self.browser.requests == [self.path.resolve().as_uri()]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    place = tmp_path_factory.mktemp("browser")
    with browser(place / "profile") as shown:
        yield Page(shown, place / "page.html")


@pytest.fixture(scope="module")
def small() -> str:
    return page([layers()], title="norm.fuse on layers.txt")


@pytest.fixture(scope="module")
def large() -> str:
    made = decoder(5000)
    assert made.report.nodes_before >= 5000
    return page([made])


# --- what is there to be seen --------------------------------------------------------------------


def test_both_halves_show_the_sites_in_colours_of_their_own(window: Page, small: str) -> None:
    window.open(small)
    window.browser.key("f")
    assert {"norm", "quant", "fused", "norm_1", "quant_1", "x", "w"} <= window.names("before")
    assert {"norm_quant_default", "fused", "norm_1", "quant_1"} <= window.names("after")
    assert window.names("after").isdisjoint({"norm", "quant"})
    before, after = window.ask("marks('before')"), window.ask("marks('after')")
    assert {"fires", "gone"} <= set(before["norm"]) & set(before["quant"])
    assert {"fires", "new"} <= set(after["norm_quant_default"])
    assert "fused" in set(before["fused"]) & set(after["fused"])
    assert "close" in set(before["quant_1"]) & set(after["quant_1"])
    assert "marked" not in before["router"]
    colour = "getComputedStyle(node('before', '{}').querySelector('.box')).fill"
    colours = [window.ask(colour.format(name)) for name in ("quant", "fused", "quant_1", "router")]
    assert len(set(colours)) == 4
    window.close()


def test_halves_stand_side_by_side_and_nothing_overlaps(window: Page, small: str) -> None:
    window.open(small)
    left, right = window.ask("box(half('before'))"), window.ask("box(half('after'))")
    aside = window.ask("box(document.querySelector('aside'))")
    assert aside["right"] <= left["left"] < left["right"] <= right["left"] < right["right"] <= 1440
    assert left["top"] == right["top"]
    assert right["right"] - right["left"] == left["right"] - left["left"] > 400
    for half in ("before", "after"):
        assert window.ask(f"overlapping('{half}')") == 0
        assert window.ask(f"sticking('{half}')") == 0
    window.close()


def test_the_table_names_rule_verdict_and_first_cause(window: Page, small: str) -> None:
    window.open(small)
    assert window.ask("all('.rule h3').map((h) => h.textContent)") == ["norm_quant"]
    assert window.ask("table()") == [
        ["fires", "quant", ""],
        ["comes close", "quant_1", "constant exact of drawn.quant is true, the rule wants false"],
        ["fused already", "fused", "already-fused fused is drawn.norm_quant already"],
    ]
    chips = window.ask("all('#verdicts button').map((b) => b.innerText.trim())")
    assert [chip.split("\n")[-1] for chip in chips] == ["1 fires", "1 already fused", "1 close"]
    window.close()


def test_a_row_jumps_to_its_site_and_tells_all_causes(window: Page, small: str) -> None:
    window.open(small, width=1200, height=700)
    window.click("row('quant_1')")
    told = window.ask("document.querySelector('.details').innerText")
    assert "2 of 2 ops stand here" in told
    assert "norm_1 is also used by router (aten.neg.default)" in told
    assert "match { q, scale = drawn.quant(drawn.norm(x, w, eps), 128) }" in told
    assert "fires with" not in told
    for half in ("before", "after"):
        assert {"norm_1", "quant_1"} <= window.names(half)
        assert window.ask(f"numbers('{half}')") == {"quant_1": "1", "norm_1": "2"}
        banner = window.ask(f"document.querySelector('#{half} .banner').innerText")
        assert "norm_quant" in banner
        assert "constant: exact of drawn.quant is true" in banner
    window.close()


def test_an_edit_is_suggested(window: Page) -> None:
    made = picture(LAYERS, RULES.replace("where {", "where { kernel: env.aiter\n"))
    window.open(page([made]))
    assert window.ask("all('.edit').map((e) => e.innerText)") == [
        "fires with --fact env.aiter=true"
    ]
    window.close()


def layers_with(old: str, new: str) -> str:
    return LAYERS.replace(old, new)


def test_hovering_shows_shapes_dtypes_and_the_line(window: Page, small: str) -> None:
    window.open(small)
    window.browser.key("f")
    card = window.hover("node('before', 'quant')")
    assert card.splitlines()[:2] == ["quant", "drawn.quant.default(norm, 128)"]
    for part in (
        "f8e4m3fn[7, 512][512, 1]cpu",
        "f32[7, 4][4, 1]cpu",
        "/model/block.py:32 in forward: q, s = self.quant(h)",
        "norm_quant: fires",
    ):
        assert part in card
    assert window.ask(
        "inside(box(half('card')), {left: 0, top: 0, right: innerWidth, bottom: innerHeight})"
    )
    assert window.ask("apart(box(half('card')), box(node('before', 'quant')))")
    near = window.hover("node('after', 'quant_1')")
    assert "norm_quant: constant: exact of drawn.quant is true, the rule wants false" in near
    # A value that stays is another op's afterwards.
    assert "item 0 of drawn.quant.default" in window.hover("node('before', 'q')")
    assert "item 0 of drawn.norm_quant.default" in window.hover("node('after', 'q')")
    window.browser.move(5, 5)
    assert window.ask("half('card').hidden")
    window.close()


def test_light_and_dark_are_readable(window: Page, small: str) -> None:
    window.open(small)
    window.click("row('quant_1')")
    seen = []
    for dark in (False, True):
        window.browser.dark(dark)
        seen.append(window.ask("getComputedStyle(document.body).backgroundColor"))
        ratios = window.ask("contrasts()")
        assert ratios
        assert min(ratios.values()) >= 4.5, ratios
    window.browser.dark(False)
    assert len(set(seen)) == 2
    window.browser.key("t")
    assert window.ask("getComputedStyle(document.body).backgroundColor") == seen[1]
    window.close()


# --- finding one's way ---------------------------------------------------------------------------


def test_keys(window: Page, small: str) -> None:
    window.open(small)
    chosen = "selected()"
    assert window.ask(chosen) == "quant"
    window.browser.key("ArrowDown")
    assert window.ask(chosen) == "quant_1"
    window.browser.key("k")
    assert window.ask(chosen) == "quant"
    window.browser.key("g")
    focused = "document.activeElement.querySelector('.name')?.textContent"
    assert window.ask(focused) == "norm"
    window.browser.key("ArrowDown")
    assert window.ask(focused) == "quant"
    assert "drawn.quant.default" in window.ask("half('card').innerText")
    window.browser.key("Escape")
    window.browser.key("/")
    window.browser.write("router")
    window.browser.key("Enter")
    assert window.ask("half('card').innerText").startswith("router")
    assert "router" in window.names("before")
    window.browser.key("?")
    assert window.ask("half('help').open")
    window.close()


def test_searching_by_rule_cause_and_node(window: Page, small: str) -> None:
    window.open(small)
    rows = "rows()"
    nodes = "all('.nodes button').map((b) => b.firstChild.textContent)"
    for typed, sites, found in (
        (
            "norm_quant",
            {"quant", "quant_1", "fused"},
            {"norm_quant_default", "fused", "q_1", "s_1", "q", "s"},
        ),
        ("also used by", {"quant_1"}, set()),
        ("aten.neg", {"quant_1"}, {"router"}),
        ("block.py:31", set(), {"norm"}),
        ("no such thing", set(), set()),
    ):
        window.browser.key("/")
        window.browser.evaluate("document.getElementById('search').value = ''")
        window.browser.write(typed)
        assert set(window.ask(rows)) == sites, typed
        assert found <= set(window.ask(nodes)), typed
        window.browser.key("Escape")
    window.close()


def test_verdicts_can_be_hidden(window: Page, small: str) -> None:
    window.open(small)
    window.click("all('#verdicts button')[2]")
    assert window.ask("rows()") == ["quant", "fused"]
    window.close()


def test_a_choice_of_graphs(window: Page) -> None:
    window.open(page([layers(), picture(HOSTILE)]))
    assert not window.ask("half('which').hidden")
    window.browser.evaluate(
        "(() => { const s = document.getElementById('graph'); s.selectedIndex = 1;"
        " s.dispatchEvent(new Event('change')); })()"
    )
    assert "layer" in window.names("before")
    assert window.ask("all('#verdicts button').length") == 1
    window.close()


# --- hostile texts and large graphs --------------------------------------------------------------


def test_hostile_texts_are_only_shown(window: Page) -> None:
    window.open(page([picture(HOSTILE, notes=[EVIL])], title=EVIL))
    shown = EVIL.replace("\u2028", "<U+2028>").replace("\u202e", "<U+202E>")
    assert window.ask("document.title") == shown
    assert window.ask("document.querySelector('h1').textContent") == shown
    card = window.hover("node('before', 'norm')")
    assert f'self.norm("{shown}")' in card
    assert shown in window.hover("node('before', 'layer')")
    assert window.ask("document.images.length") == 0
    assert window.ask("document.scripts.length") == 3
    window.close()


@pytest.mark.slow
def test_a_graph_of_5000_nodes_is_usable(window: Page, large: str) -> None:
    since = time.monotonic()
    window.open(large)
    assert window.ask("all('#before .node.fires').length") > 0
    assert time.monotonic() - since < OPENS
    # What is drawn is the place, not the graph; the ribbon above shows all of it.
    assert window.ask("all('.node').length") < 100
    assert window.ask("all('#before .ribbon path').length") == 1
    chosen = "selected()"

    def within(action: Any, seen: str) -> None:
        since = time.monotonic()
        action()
        assert window.ask(seen), seen
        assert time.monotonic() - since < ACTS, seen

    first = window.ask(chosen)
    within(lambda: window.browser.key("ArrowDown"), f"{chosen} !== '{first}'")
    drawn = window.ask("all('#before .node').length")
    within(
        lambda: window.click("document.querySelector('#before .stub')"),
        f"all('#before .node').length > {drawn}",
    )
    within(lambda: window.browser.key("2"), "all('#before .node').length > 100")
    assert window.ask("half('show-sites').textContent") == "Sites nearby"
    assert window.ask("half('show-whole').disabled")
    window.browser.key("/")
    within(lambda: window.browser.write("layer60_input_norm"), "all('.nodes button').length === 1")
    within(lambda: window.browser.key("Enter"), "!half('card').hidden")
    assert "layer60_input_norm" in window.names("before")
    place = window.ask("box(document.querySelector('#after .ribbon svg'))")
    there = place["left"] + 0.9 * (place["right"] - place["left"])
    # Whatever was searched for, the site that is clicked at can be seen in the list.
    within(lambda: window.browser.click(there, place["top"] + 5), "rows().includes(selected())")
    window.close()


def test_a_page_without_sites(window: Page) -> None:
    text = layers_with("drawn.norm.", "drawn.other.").replace("drawn.quant.", "drawn.any.")
    text = text.replace("drawn.norm_quant.", "drawn.all.")
    window.open(page([picture(text)]))
    assert {"norm", "quant", "router"} <= window.names("before")
    assert "Near nowhere" in window.ask("half('list').innerText")
    window.close()
