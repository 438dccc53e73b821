"""What a page holds: the answers, the graphs, nothing that acts, the same every time."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given

from fusiondsl.engine.why.copies import copy_of
from fusiondsl.graphs import read
from fusiondsl.pictures import draw, page
from fusiondsl.pictures.page import HERE, LAYOUT, LAYOUT_LICENCE, SCRIPTS
from tests.engine.lab import rules as lab_rules
from tests.pictures.samples import CHAIN, EVIL, HOSTILE, RULES, held, layers, picture, rules
from tests.properties.graphs import RULES as LAB_RULES
from tests.properties.graphs import random_graphs
from tests.why.test_agreement import CHECKS, Drawn

DAGRE = "54a503e346f93ca0bb10abe7999587e037262935687aca45eb4e4b0f64bbb578"
"""SHA-256 of `package/dist/dagre.min.js` in the archive of @dagrejs/dagre 3.1.3 at npm."""
PLAIN = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "bf16[7, 8][8, 1]cpu"):
        one: "bf16[7, 8][8, 1]cpu" = torch.ops.drawn.one.default(x)
        two: "bf16[7, 8][8, 1]cpu" = torch.ops.drawn.two.default(one)
        three: "bf16[7, 8][8, 1]cpu" = torch.ops.drawn.three.default(two)
        return (three,)
"""


# --- what it says --------------------------------------------------------------------------------


def test_every_site_with_its_verdict_and_causes() -> None:
    data = held(page([layers()]))
    text = data["texts"]
    (graph,) = data["graphs"]
    (rule,) = graph["rules"]
    assert text[rule["name"]] == "norm_quant"
    told = {
        text[site["node"]]: (site["verdict"], [text[c["message"]] for c in site["causes"]])
        for site in rule["sites"]
    }
    assert told == {
        "quant": ("fires", []),
        "fused": ("already fused", ["fused is drawn.norm_quant already"]),
        "quant_1": (
            "close",
            [
                "exact of drawn.quant is true, the rule wants false",
                "norm_1 is also used by router (aten.neg.default)",
            ],
        ),
    }


def test_the_regions_of_a_site() -> None:
    data = held(page([layers()]))
    text = data["texts"]
    (graph,) = data["graphs"]
    names = [text[node[0]] for node in graph["nodes"]]
    where = {
        text[site["node"]]: [[names[i] for i in site[half]] for half in ("before", "after")]
        for site in graph["rules"][0]["sites"]
    }
    assert where == {
        "quant": [["norm", "quant"], ["norm_quant_default"]],
        "fused": [["fused"], ["fused"]],
        "quant_1": [["norm_1", "quant_1"], ["norm_1", "quant_1"]],
    }


def test_what_hovering_shows() -> None:
    data = held(page([layers()]))
    text = data["texts"]
    (graph,) = data["graphs"]
    nodes = {text[node[0]]: node for node in graph["nodes"]}
    _, kind, op, arguments, values, line, inputs = nodes["quant"]
    assert (kind, text[op], text[arguments]) == ("op", "drawn.quant.default", "norm, 128")
    assert [text[value] for value in values] == [
        "f8e4m3fn[7, 512][512, 1]cpu",
        "f32[7, 4][4, 1]cpu",
    ]
    assert text[line] == "/model/block.py:32 in forward: q, s = self.quant(h)"
    assert [text[graph["nodes"][i][0]] for i in inputs] == ["norm"]


def test_rules_that_use_what_others_wrote() -> None:
    drawn = picture(PLAIN, CHAIN)
    assert drawn.report.counts == {"first": 1, "second": 1}
    data = held(page([drawn]))
    text = data["texts"]
    (graph,) = data["graphs"]
    names = [text[node[0]] for node in graph["nodes"]]
    where = {
        text[rule["name"]]: [
            [names[i] for i in rule["sites"][0][half]] for half in ("before", "after")
        ]
        for rule in graph["rules"]
    }
    assert where == {
        "first": [["one", "two"], ["all_three_default"]],
        "second": [["one", "two", "three"], ["all_three_default"]],
    }


def test_only_the_rule_and_the_site_that_are_asked_about() -> None:
    drawn = picture(PLAIN, CHAIN, asked=["second"])
    data = held(page([drawn]))
    text = data["texts"]
    (graph,) = data["graphs"]
    # The graph afterwards is what all rules make of it, and what changed it is named.
    assert [text[rule["name"]] for rule in graph["rules"]] == ["second", "first"]
    assert len(graph["after"]) == 3


@CHECKS
@given(random_graphs(plants=4))
def test_every_change_of_a_graph_belongs_to_a_site(drawn: Drawn) -> None:
    gm, _ = drawn
    compiled = lab_rules("".join(LAB_RULES.values()))
    text = str(gm.graph)
    made = draw(compiled, gm)
    assert str(gm.graph) == text, "the graph is left as it is"
    copied = copy_of(gm.graph)
    compiled.apply(copied)
    data = held(page([made]))
    (graph,) = data["graphs"]
    names = [data["texts"][node[0]] for node in graph["nodes"]]
    assert names[: graph["before"]] == [node.name for node in gm.graph.nodes]
    assert [names[i] for i in graph["after"]] == [node.name for node in copied.nodes]
    sites = [site for rule in graph["rules"] for site in rule["sites"]]
    fired = [site for site in sites if site["verdict"] == "fires"]
    assert len(fired) == len(made.report.fired)
    old, new = set(range(graph["before"])), set(graph["after"])
    assert old - new <= {i for site in fired for i in site["before"]}
    assert new - old <= {i for site in fired for i in site["after"]}
    for site in sites:
        assert set(site["before"]) <= old
        assert set(site["after"]) <= new


# --- what it is ----------------------------------------------------------------------------------


def test_the_same_picture_is_the_same_page() -> None:
    assert page([layers()]) == page([layers()])


def test_the_same_page_in_another_process() -> None:
    program = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1])\n"
        "from tests.pictures.samples import layers\n"
        "from fusiondsl.pictures import page\n"
        "print(hashlib.sha256(page([layers()]).encode()).hexdigest())"
    )
    root = str(HERE.parents[1])
    ran = subprocess.run(
        [sys.executable, "-c", program, root],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == hashlib.sha256(page([layers()]).encode()).hexdigest()


def test_only_ascii_and_nothing_from_elsewhere() -> None:
    text = page([layers()])
    assert text.isascii()
    markup = re.sub(r"<script\b.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)
    assert re.findall(r'(?:src|href|action|data)="([^"]*)"', markup) == ["data:,"]
    assert "sourceMappingURL" not in text
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) == {"#"}


def test_only_its_own_scripts_may_run() -> None:
    text = page([layers()])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == "'none'"
    blocks = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", text, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(b.encode()).digest()).decode() for b in blocks}
    allowed = set(re.findall(r"'sha256-([^']+)'", rules["script-src"] + rules["style-src"]))
    assert len(blocks) == 3
    assert digests == allowed
    assert "unsafe" not in policy


def test_text_never_becomes_markup() -> None:
    """The script makes elements and gives them text; nothing parses text as markup or code."""
    code = "".join((HERE / "web" / f"{name}.js").read_text() for name in SCRIPTS)
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert way not in code


def test_hostile_names_and_lines() -> None:
    made = picture(HOSTILE, RULES.replace("rule norm", f"# {EVIL[:-2]}\nrule norm"), notes=[EVIL])
    text = page([made], title=EVIL)
    assert text.count("</script>") == 3
    assert "<img" not in text
    assert "&lt;/script&gt;&lt;script&gt;" in text
    data = held(text)
    shown = "\n".join(data["texts"])
    assert "</script><script>document.title='taken'</script>" in shown
    assert "\u2028" not in shown
    assert "\u202e" not in shown
    assert "<U+2028><U+202E>" in shown


def test_long_texts_are_cut() -> None:
    text = HOSTILE.replace(EVIL, "a" * 100_000)
    assert len(page([picture(text)])) < len(page([picture(HOSTILE)])) + 20_000


def test_objects_in_a_graph_are_named_by_what_they_are() -> None:
    """Their own text may have an address in it, another one in each process."""
    compiled = rules()
    (graph,) = read(PLAIN, program=rules(CHAIN).program)
    node = next(n for n in graph.gm.graph.nodes if n.name == "two")
    node.kwargs = {"layer": object()}
    made = draw(compiled, graph.gm)
    assert made.before.nodes["two"].arguments == "one, layer=<object>"


def test_a_page_without_graphs_is_none() -> None:
    with pytest.raises(ValueError, match="a page needs a picture"):
        page([])


# --- the library in it ---------------------------------------------------------------------------


def test_the_layout_library_is_the_published_one() -> None:
    assert hashlib.sha256(LAYOUT.read_bytes()).hexdigest() == DAGRE
    assert DAGRE in (HERE.parents[1] / "docs" / "architecture.md").read_text()
    notice = LAYOUT_LICENCE.read_text()
    assert "Copyright (c) 2012-2014 Chris Pettitt" in notice
    assert notice.strip() in page([layers()])
