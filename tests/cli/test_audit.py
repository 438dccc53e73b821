"""`fusiondsl audit` end to end: regions, the table, and contracts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run

CASES = Path(__file__).parents[1] / "cases" / "audit" / "faulty"
WORDS = ("audit", "pack.fuse", "--graph", "graph.txt", "--target", "gfx950")
REPORT = """\
GraphModule: 2 fusable regions: 1 fires, 1 not fused
  fires          scale_add at add (2 of 2 ops)
  not fused      scale_add at add_1 (2 of 2 ops)
                 predicate-false [dtypes]: D is f32, not in (bf16, f16)

rule       fires  already fused  taken  close
scale_add      1              0      0      1
"""


def test_the_report(run: Run) -> None:
    done = run(*WORDS)
    assert (done.code, done.out, done.err) == (0, REPORT + "\n", "")


def test_a_graph_that_was_rewritten(run: Run) -> None:
    words = ("pack.fuse", "--target", "gfx950", "--graph")
    run("apply", *words, "graph.txt", "-o", "out.txt")
    done = run("audit", *words, "out.txt")
    assert done.out.startswith("GraphModule: 2 fusable regions: 1 already fused, 1 not fused\n")
    assert "scale_add      0              1      0      1\n" in done.out


@pytest.mark.parametrize(
    "contract",
    [
        "GraphModule: {scale_add: 1}",
        '"*": {"*": 1}',
        '"#1": {scale_add: {fires: 1, fused: 0, taken: 0, close: 1}}',
        "GraphModule: {scale_add: 1}\n  '*': {scale_add: 7}",
    ],
)
def test_contracts_that_hold(run: Run, contract: str) -> None:
    Path("expect.yaml").write_text(f"doc: one layer\nexpect:\n  {contract}\n")
    done = run(*WORDS, "--expect", "expect.yaml")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{REPORT}contract: holds\n\n"


def test_contracts_that_do_not(run: Run) -> None:
    Path("expect.yaml").write_text(
        "expect:\n  GraphModule:\n    scale_add: 2\n  '*': {scale_add: 0}\n"
        "  '#1':\n    scale_add:\n      close: 0\n      fires: 1\n"
    )
    done = run(*WORDS, "--expect", "expect.yaml")
    assert (done.code, done.err) == (1, "")
    assert done.out == (
        f"{REPORT}contract: does not hold\n"
        "  - scale_add: 2 sites (expect.yaml:3:5)\n"
        "  + scale_add: 1 site\n"
        "  - scale_add: close 0 (expect.yaml:7:7)\n"
        "  + scale_add: close 1\n\n"
    )


def test_a_graph_without_a_contract(run: Run, place: Path) -> None:
    graph = (place / "graph.txt").read_text()
    (place / "graph.txt").write_text(f"{graph}\n{graph.replace('GraphModule', 'Second')}")
    Path("expect.yaml").write_text("expect: {Second: {scale_add: 1}}\n")
    done = run(*WORDS, "--expect", "expect.yaml")
    assert done.code == 0
    assert [line for line in done.out.splitlines() if line.startswith("contract")] == [
        "contract: none for this graph",
        "contract: holds",
    ]


def test_one_graph_of_a_file_that_has_contracts_for_all(run: Run, place: Path) -> None:
    graph = (place / "graph.txt").read_text()
    (place / "graph.txt").write_text(f"{graph}\n{graph.replace('GraphModule', 'Second')}")
    Path("expect.yaml").write_text(
        "expect: {Second: {scale_add: 1}, '#1': {scale_add: 2}, '*': {scale_add: 3}}\n"
    )
    words = ("audit", "pack.fuse", "--target", "gfx950", "--expect", "expect.yaml", "--graph")
    assert run(*words, "graph.txt#2").code == 0
    done = run(*words, "graph.txt#1")
    assert done.code == 1
    assert "  - scale_add: 2 sites (expect.yaml:1:41)\n  + scale_add: 1 site\n" in done.out


def test_json(run: Run) -> None:
    Path("expect.yml").write_text("expect: {GraphModule: {scale_add: 2}}\n")
    done = run(*WORDS, "--expect", "expect.yml", "--format", "json")
    document = json.loads(done.out)
    assert done.code == 1
    (graph,) = document["graphs"]
    assert [region["state"] for region in graph["regions"]] == ["fires", "not fused"]
    assert graph["regions"][0]["cause"] is None
    assert graph["regions"][1]["cause"]["label"] == "dtypes"
    assert graph["coverage"] == [
        {"rule": "scale_add", "fires": 1, "fused": 0, "taken": 0, "close": 1}
    ]
    assert document["failures"] == [
        {
            "graph": "GraphModule",
            "rule": "scale_add",
            "of": "sites",
            "wanted": 2,
            "found": 1,
            "span": "expect.yml:1:24",
        }
    ]


@pytest.mark.parametrize("file", sorted(CASES.glob("*.yaml")), ids=lambda file: file.stem)
def test_faulty_contracts(run: Run, file: Path) -> None:
    Path("expect.yaml").write_bytes(file.read_bytes())
    done = run(*WORDS, "--expect", "expect.yaml")
    assert (done.code, done.out) == (2, "")
    expected = file.with_suffix(".yaml.expected")
    if os.environ.get("FUSIONDSL_UPDATE_CASES") == "1":
        expected.write_text(done.err, encoding="utf-8")
    assert done.err == expected.read_text(encoding="utf-8")


def test_no_contract_file(run: Run) -> None:
    done = run(*WORDS, "--expect", "pack.fuse")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error[FD005]: `pack.fuse` is not a contract file\n")
    done = run(*WORDS, "--expect", "nowhere.yaml")
    assert done.code == 2
    assert done.err.startswith("error[FD001]: cannot read `nowhere.yaml`")
