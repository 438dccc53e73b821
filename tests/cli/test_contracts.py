"""Contracts that rule files state: `test` and `audit` hold graphs to them, nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fusiondsl
from fusiondsl.artifact import dumps, identity, loads
from fusiondsl.artifact.module import dump_python
from fusiondsl.target import Target
from tests.cli.conftest import GRAPH, PACK, Run

AUDIT = ("audit", "pack.fuse", "--target", "gfx950", "--graph")
CAUSE = "at add_1: predicate-false [dtypes]: D is f32, not in (bf16, f16)"


def state(*contracts: str, pack: str = PACK) -> None:
    """Writes the pack with contracts behind it; its rules end in line 19."""
    Path("pack.fuse").write_text(pack + "\n".join(contracts) + "\n")


def two_graphs() -> None:
    Path("graph.txt").write_text(f"{GRAPH}\n{GRAPH.replace('GraphModule', 'Second')}")


# --- `test` --------------------------------------------------------------------------------------


def test_contracts_that_hold(run: Run) -> None:
    state(
        'expect scale_add == 1 in graph "graph.txt" { env.arch = "gfx950" }',
        'expect scale_add == 0 in graph "graph.txt" { env.arch = "gfx90a" }',
        'expect scale_add == 0 in graph "graph.txt"',
        'expect scale_add == 1 in graph "graph.txt#1" { env.arch = "gfx942" }',
    )
    done = run("test", "pack.fuse")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "contracts\n"
        "  ok      scale_add == 1 in graph.txt with env.arch = gfx950 (pack.fuse:19:1)\n"
        "  ok      scale_add == 0 in graph.txt with env.arch = gfx90a (pack.fuse:20:1)\n"
        "  ok      scale_add == 0 in graph.txt (pack.fuse:21:1)\n"
        "  ok      scale_add == 1 in graph.txt#1 with env.arch = gfx942 (pack.fuse:22:1)\n"
        "1 rules: 3 passed, 0 failed, 0 skipped\n"
        "4 contracts: 4 passed, 0 failed\n"
    )


def test_what_a_contract_leaves_open_is_taken_from_the_options(run: Run) -> None:
    state('expect scale_add == 1 in graph "graph.txt"')
    assert run("test", "pack.fuse", "--target", "gfx950").code == 0
    done = run("test", "pack.fuse")
    assert done.code == 1
    assert (
        "  FAILED  scale_add == 1 in graph.txt (pack.fuse:19:1)\n"
        "          0 sites; at add: environment [arch]: cli_demo.scale_add is not available: "
        "env.arch is not known\n"
    ) in done.out


def test_a_shortfall_is_told_with_its_first_cause(run: Run) -> None:
    state('expect scale_add == 2 in graph "graph.txt" { env.arch = "gfx950" }')
    done = run("test", "pack.fuse")
    assert (done.code, done.err) == (1, "")
    title = "scale_add == 2 in graph.txt with env.arch = gfx950 (pack.fuse:19:1)"
    assert f"  FAILED  {title}\n          1 site; {CAUSE}\n" in done.out
    assert done.out.endswith("1 contract: 0 passed, 1 failed\n")
    why = run("why", "pack.fuse", "--graph", "graph.txt", "--target", "gfx950").out
    assert CAUSE.removeprefix("at add_1: ") in why


def test_too_many_are_named(run: Run) -> None:
    state('expect scale_add == 0 in graph "graph.txt" { env.arch = "gfx950" }')
    assert "          1 site; at add\n" in run("test", "pack.fuse").out


def test_nothing_is_near(run: Run) -> None:
    state('expect scale_add == 1 in graph "empty.txt" { env.arch = "gfx950" }')
    Path("empty.txt").write_text(
        'def forward(self, x: "f32[4][1]cpu"):\n'
        '    relu: "f32[4][1]cpu" = torch.ops.aten.relu.default(x)\n'
        "    return (relu,)\n"
    )
    done = run("test", "pack.fuse")
    assert done.code == 1
    message = "structure: no half of the source stands anywhere in the graph"
    assert f"          0 sites; {message}\n" in done.out


def test_all_graphs_of_a_file_count_together(run: Run) -> None:
    two_graphs()
    state(
        'expect scale_add == 2 in graph "graph.txt" { env.arch = "gfx950" }',
        'expect scale_add == 1 in graph "graph.txt#2" { env.arch = "gfx950" }',
        'expect scale_add == 3 in graph "graph.txt#1" { env.arch = "gfx942" }',
        'expect scale_add == 3 in graph "graph.txt" { env.arch = "gfx942" }',
    )
    done = run("test", "pack.fuse")
    assert done.code == 1
    assert [line for line in done.out.splitlines() if line.startswith("          ")] == [
        f"          1 site; {CAUSE}",
        f"          2 sites; {CAUSE.replace('add_1:', 'add_1 of GraphModule:')}",
    ]
    assert done.out.endswith("4 contracts: 2 passed, 2 failed\n")


def test_what_was_fused_before_counts(run: Run) -> None:
    run("apply", "pack.fuse", "--target", "gfx950", "--graph", "graph.txt", "-o", "out.txt")
    state('expect scale_add == 1 in graph "out.txt" { env.arch = "gfx950" }')
    assert run("test", "pack.fuse").code == 0


def test_a_rule_that_loses_its_sites(run: Run) -> None:
    """All rules that are read together are tried, as they would be in a program."""
    better = PACK.partition("rule")[2].replace(" scale_add(", "rule scale_add_first(", 1)
    state(
        better.replace("doc", "before scale_add\n  doc"),
        'expect scale_add == 1 in graph "graph.txt" { env.arch = "gfx950" }',
        'expect scale_add_first == 1 in graph "graph.txt" { env.arch = "gfx950" }',
    )
    done = run("test", "pack.fuse", "--rule", "scale_add")
    assert done.code == 1
    assert "          0 sites; at add: lost-to-rule: " in done.out
    assert "scale_add_first ==" not in done.out
    assert run("test", "pack.fuse", "--rule", "scale_add_first").code == 0


def test_token_counts(run: Run) -> None:
    Path("graph.txt").write_text(
        'def forward(self, s0: "Sym(s0)", x: "bf16[s0, 64][64, 1]cpu", '
        'y: "bf16[s0, 64][64, 1]cpu"):\n'
        '    mul: "bf16[s0, 64][64, 1]cpu" = torch.ops.aten.mul.Tensor(x, 2.0)\n'
        '    add: "bf16[s0, 64][64, 1]cpu" = torch.ops.aten.add.Tensor(mul, y)\n'
        "    return (add,)\n"
    )
    state(
        'expect scale_add == 1 in graph "graph.txt" { env.arch = "gfx950", tokens = (1, 512) }',
        'expect scale_add == 1 in graph "graph.txt" { env.arch = "gfx950", tokens = 512 }',
        'expect scale_add == 0 in graph "graph.txt" { env.arch = "gfx950", tokens = (1, 513) }',
        'expect scale_add == 0 in graph "graph.txt" { env.arch = "gfx950" }',
    )
    done = run("test", "pack.fuse")
    assert done.code == 0
    assert "with env.arch = gfx950, tokens = 1:512 (pack.fuse:19:1)\n" in done.out
    assert "with env.arch = gfx950, tokens = 512 (pack.fuse:20:1)\n" in done.out
    given = run("test", "pack.fuse", "--tokens", "1:512")
    assert given.code == 1
    assert given.out.endswith("4 contracts: 3 passed, 1 failed\n")


def test_answers_of_predicates(run: Run) -> None:
    asks = PACK.replace("  where {\n", "  where {\n    asked: enabled()\n")
    state(
        "extern predicate enabled()",
        'expect scale_add == 1 in graph "graph.txt" { env.arch = "gfx950", enabled = true }',
        'expect scale_add == 0 in graph "graph.txt" { env.arch = "gfx950", enabled = false }',
        'expect scale_add == 0 in graph "graph.txt" { env.arch = "gfx950" }',
        pack=asks.partition("  example")[0] + "}\n",
    )
    assert run("test", "pack.fuse").out.endswith("3 contracts: 3 passed, 0 failed\n")
    assert run("test", "pack.fuse", "--answer", "enabled=true").out.endswith("2 passed, 1 failed\n")


def test_graphs_that_cannot_be_read(run: Run) -> None:
    Path("broken.txt").write_text(GRAPH.replace("mul, y_1)", "mul, nothing)"))
    state(
        'expect scale_add == 1 in graph "nowhere.txt"',
        'expect scale_add == 1 in graph "graph.txt#7"',
        'expect scale_add == 1 in graph "broken.txt"',
        'expect scale_add == 0 in graph "broken.txt" { env.arch = "gfx950" }',
    )
    done = run("test", "pack.fuse")
    assert done.code == 1
    assert [line.strip() for line in done.out.splitlines() if line.startswith("          ")] == [
        "cannot read nowhere.txt: No such file or directory",
        "graph.txt has no graph #7",
        "`nothing` is used but not defined before",
        "`nothing` is used but not defined before",
    ]
    assert done.err.count("`nothing` is used but not defined before") == 1


def test_paths_are_relative_to_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pack" / "graphs").mkdir(parents=True)
    (tmp_path / "pack" / "graphs" / "decoder.txt").write_text(GRAPH)
    (tmp_path / "pack" / "contracts.yaml").write_text(
        "imports: [../pack.fuse]\nexpect:\n"
        "  - {rule: scale_add, sites: 1, graph: graphs/decoder.txt, env.arch: gfx950}\n"
    )
    for paths in (("pack",), ("pack/contracts.yaml", "pack.fuse"), (str(tmp_path / "pack"),)):
        done = run("test", *paths)
        assert (done.code, done.err) == (0, "")
        assert done.out.endswith("1 contract: 1 passed, 0 failed\n")


def test_json(run: Run) -> None:
    state('expect scale_add == 2 in graph "graph.txt" { env.arch = "gfx950", tokens = (1, 9) }')
    document = json.loads(run("test", "pack.fuse", "--format", "json").out)
    assert document["contracts"] == [
        {
            "rule": "scale_add",
            "graph": "graph.txt",
            "given": {"env.arch": "gfx950", "tokens": "1:9"},
            "wanted": 2,
            "found": 1,
            "passed": False,
            "message": CAUSE,
            "at": "pack.fuse:19:1",
        }
    ]


# --- `check` and `fmt` ---------------------------------------------------------------------------


def test_check_counts_them_and_looks_for_the_graphs(run: Run) -> None:
    state('expect scale_add == 2 in graph "graph.txt"')
    done = run("check", "pack.fuse")
    assert (done.code, done.out) == (0, "checked 1 file, 1 op, 1 rule, 1 contract\n")
    Path("graph.txt").unlink()
    assert "warning[FD121]: there is no graph file `graph.txt`" in run("check", "pack.fuse").err
    assert run("check", "pack.fuse", "--strict").code == 1


def test_check_reads_no_graph(run: Run) -> None:
    state('expect scale_add == 2 in graph "graph.txt"')
    Path("graph.txt").write_bytes(b"\0\xff")
    assert (run("check", "pack.fuse").code, run("check", "pack.fuse").err) == (0, "")


def test_rules_work_without_the_graphs(run: Run) -> None:
    Path("graph.txt").rename("elsewhere.txt")
    state('expect scale_add == 2 in graph "graph.txt"')
    done = run("apply", "pack.fuse", "--graph", "elsewhere.txt", "--target", "gfx950")
    assert (done.code, done.err) == (0, "")


def test_both_spellings(run: Run) -> None:
    state('expect scale_add == 1 in graph "graph.txt" { env.arch = "gfx950", tokens = (1, 9) }')
    assert run("fmt", "pack.fuse", "--to", "yaml").code == 0
    done = run("test", "pack.yaml")
    assert (done.code, done.out.endswith("1 contract: 1 passed, 0 failed\n")) == (0, True)


def test_names_that_only_one_spelling_can_have(run: Run) -> None:
    """A predicate called like a key of the mapping that YAML has."""
    state(
        "extern predicate graph()",
        'expect scale_add == 1 in graph "graph.txt" { graph = true }',
    )
    assert run("check", "pack.fuse").code == 0
    done = run("fmt", "pack.fuse", "--to", "yaml")
    assert done.code == 3
    assert "error[FD032]: `graph` is given twice, which YAML cannot say" in done.err


# --- `audit` -------------------------------------------------------------------------------------


def test_audit_holds_its_graph_to_them(run: Run) -> None:
    Path("other.txt").write_text(GRAPH)
    state(
        'expect scale_add == 1 in graph "graph.txt" { env.arch = "gfx950" }',
        'expect scale_add == 2 in graph "graph.txt"',
        'expect scale_add == 7 in graph "graph.txt" { env.arch = "gfx942" }',
        'expect scale_add == 7 in graph "other.txt"',
    )
    done = run(*AUDIT, "graph.txt")
    assert (done.code, done.err) == (1, "")
    assert done.out.endswith(
        "\ncontracts of the rules: do not hold\n"
        "  - scale_add: 2 sites (pack.fuse:20:1)\n"
        "  + scale_add: 1 site\n"
        "not checked: scale_add == 7 in graph.txt with env.arch = gfx942 (pack.fuse:21:1)\n"
    )


def test_audit_where_they_hold(run: Run, tmp_path: Path) -> None:
    state('expect scale_add == 1 in graph "graph.txt"')
    for name in ("graph.txt", "./graph.txt", str(tmp_path / "graph.txt"), "graph.txt#1"):
        done = run(*AUDIT, name)
        assert done.code == 0
        assert "contracts of the rules: " not in done.out or done.out.endswith(": hold\n")
    assert run(*AUDIT, "graph.txt").out.endswith("contracts of the rules: hold\n")


def test_audit_of_one_graph_of_several(run: Run) -> None:
    two_graphs()
    state(
        'expect scale_add == 2 in graph "graph.txt"',
        'expect scale_add == 1 in graph "graph.txt#2"',
    )
    assert run(*AUDIT, "graph.txt").out.endswith("contracts of the rules: hold\n")
    done = run(*AUDIT, "graph.txt#2")
    assert done.code == 0
    assert done.out.endswith(
        "contracts of the rules: hold\nnot checked: scale_add == 2 in graph.txt (pack.fuse:19:1)\n"
    )


def test_audit_of_a_graph_that_is_not_there(run: Run) -> None:
    state('expect scale_add == 0 in graph "graph.txt#3"')
    done = run(*AUDIT, "graph.txt")
    assert done.code == 2
    assert "error[FD618]: graph.txt has no graph #3" in done.err


def test_audit_with_both_kinds(run: Run) -> None:
    state('expect scale_add == 2 in graph "graph.txt"')
    Path("expect.yaml").write_text("expect: {GraphModule: {scale_add: 3}}\n")
    done = run(*AUDIT, "graph.txt", "--expect", "expect.yaml", "--format", "json")
    failures = json.loads(done.out)["failures"]
    assert [(f["graph"], f["wanted"], f["found"], f["span"]) for f in failures] == [
        ("GraphModule", 3, 1, "expect.yaml:1:24"),
        ("graph.txt", 2, 1, "pack.fuse:19:1"),
    ]
    assert done.code == 1


def test_audit_as_json_names_what_was_not_checked(run: Run) -> None:
    state(
        'expect scale_add == 1 in graph "graph.txt"',
        'expect scale_add == 1 in graph "graph.txt" { env.arch = "gfx942" }',
    )
    document = json.loads(run(*AUDIT, "graph.txt", "--format", "json").out)
    assert document["failures"] == []
    assert document["unchecked"] == [
        {
            "rule": "scale_add",
            "graph": "graph.txt",
            "given": {"env.arch": "gfx942"},
            "wanted": 1,
            "span": "pack.fuse:20:1",
        }
    ]


# --- what they are not ---------------------------------------------------------------------------


@pytest.mark.parametrize("contract", ["", 'expect scale_add == 1 in graph "graph.txt"'])
def test_no_part_of_what_rules_do(contract: str) -> None:
    """Neither a cache key nor an artifact changes with them."""
    plain = fusiondsl.load("pack.fuse").program
    state(contract)
    program, target = fusiondsl.load("pack.fuse").program, Target("gfx950")
    assert len(program.expects) == bool(contract)
    assert identity(program, target) == identity(plain, target)
    assert dumps(program, target) == dumps(plain, target)
    assert dump_python(program, target) == dump_python(plain, target)
    assert loads(dumps(program, target)).program.expects == ()
    made = fusiondsl.CompiledRules(program, target).graph_pass()
    assert made.uuid() == fusiondsl.CompiledRules(plain, target).graph_pass().uuid()
