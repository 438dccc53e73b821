"""`plan`: rules, token counts and end points for an engine that is not started."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fusiondsl.cli.exits import Exit
from tests.cli.conftest import Run

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "torch_dtype": "bfloat16",
}

PLAN = """\
rule       can fire  tokens  ends ranges at  why not, or what is left to decide
scale_add  yes       1..512             512

1 of 1 rules can fire for env.arch = gfx950, env.mx = true, env.tp_group = tp:0, \
env.tp_size = 1, env.vllm = true, model.hidden_size = 64, model.intermediate_size = 128, \
model.itemsize = 2, model.max_tokens = 4096
compile ranges: 1..512, 513..4096
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    return "model"


def plan(run: Run, *words: str) -> str:
    done = run("plan", "pack.fuse", "--target", "gfx950", "--max-tokens", "4096", *words)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_the_plan(run: Run, model: str) -> None:
    assert plan(run, "--model", model) == PLAN
    assert plan(run, "--model", f"{model}/config.json") == PLAN


def test_the_sizes_of_a_model_of_text_and_images(run: Run, model: str) -> None:
    Path(model, "config.json").write_text(
        json.dumps({**MODEL, "text_config": MODEL, "hidden_size": 7})
    )
    assert plan(run, "--model", model) == PLAN


def test_own_end_points_are_kept_where_they_are_below_the_most(run: Run, model: str) -> None:
    out = plan(run, "--model", model, "--end-points", "1,16,512,5000")
    assert out.endswith("compile ranges: 1..16, 17..512, 513..4096\n")


def test_another_dtype_moves_the_end_point(run: Run, model: str) -> None:
    assert " 1..256 " in plan(run, "--model", model, "--dtype", "float32")


def test_a_bound_that_is_no_number_is_said(run: Run, model: str) -> None:
    assert "decided in the graph: limit (--model would tell)\n" in plan(run)


UNKNOWN = """
op plan.fast(x: D[t.., H]) -> (y: D[t.., H]) {
  available { env.arch in ("gfx942", "gfx950"); env.aiter_dynamic_hidden }
  means { y = x + x }
}
extern predicate fits(l: layer, n: int)
op plan.layered(x: D[t.., H], l: layer) -> (y: D[t.., H]) { effect kv_cache(l); means { y = x } }
op plan.fused(x: D[t.., H], l: layer) -> (y: D[t.., H]) { effect kv_cache(l); means { y = x + x } }
rule fast(x: D[tokens.., H]) {
  match   { y = x + x }
  replace { y = plan.fast(x) }
  where   { env.tp_size == 1; tokens <= 16 }
}
rule layered(x: D[tokens.., H], l: layer) {
  match   { s = x + x; y = plan.layered(s, l) }
  replace { y = plan.fused(x, l) }
  where   { fits(l, H); tokens <= H * 2 }
}
"""


def test_what_is_not_known_and_which_option_would_tell(run: Run, model: str) -> None:
    Path("unknown.fuse").write_text(UNKNOWN)
    words = ("plan", "unknown.fuse", "--max-tokens", "64")
    done = run(*words)
    why = "plan.fast is not available: env.arch is not known"
    facts = "--fact env.aiter_dynamic_hidden=..., --target"
    assert f"fast     unknown   1..16                   {why} ({facts} would tell)\n" in done.out
    layers = "decided in the graph: a condition; asked of layers: fits"
    assert f"layered  yes       any                     {layers} (--model, --answer" in done.out
    assert "\n1 of 2 rules can fire for " in done.out
    assert done.out.endswith(f"\n1 more may, or may not: {facts} would tell\n")
    told = run(*words, "--target", "gfx950", "--fact", "env.aiter_dynamic_hidden=true")
    assert re.search(r"^fast +yes +1\.\.16 +16\b", told.out, re.MULTILINE), told.out
    assert "would tell\n" not in told.out.splitlines()[-1]
    # What is false decides, whatever is not known.
    told = run(*words, "--tp", "2")
    assert "fast     no                                env.tp_size is 2, not 1\n" in told.out
    rows = json.loads(run(*words, "--format", "json").out)["rules"]
    told_by = {row["rule"]: (row["state"], row["eligible"], row["told_by"]) for row in rows}
    assert told_by["fast"] == ("unknown", False, facts.split(", "))
    answered = run(*words, "--model", model, "--answer", "fits=true").out
    assert "layered  yes       any" in answered
    assert "would tell" not in answered.split("layered")[1].splitlines()[0]


def test_an_artifact_has_its_target(run: Run, model: str) -> None:
    Path("unknown.fuse").write_text(UNKNOWN)
    run("compile", "unknown.fuse", "-o", "unknown.fused")
    done = run("plan", "unknown.fused")
    own = "`fusiondsl compile` with "
    facts = f"{own}--fact env.aiter_dynamic_hidden=..., {own}--target"
    assert f"env.arch is not known ({facts} would tell)\n" in done.out
    assert "(--model, `fusiondsl compile` with --answer would tell)" in done.out


def test_why_not(run: Run) -> None:
    done = run("plan", "pack.fuse", "--target", "gfx90a", "--format", "json")
    (row,) = json.loads(done.out)["rules"]
    assert (row["eligible"], row["tokens"]) == (False, [])
    assert row["reason"].startswith("cli_demo.scale_add is not available: env.arch is")


REDUCED = """
import "fusiondsl:ops/collectives.fuse"
extern predicate is_wanted(n: int)
op plan.reduced(x: D[t.., H], group: str) -> (y: D[t.., H]) {
  effect communicator(group)
  means { y = all_reduce(x, group) }
}
rule reduced(x: D[tokens.., H], group: str) {
  match { y = all_reduce(x, group) }
  replace { y = plan.reduced(x, group) }
  where { tokens <= 256 }
}
rule wanted(x: D[tokens.., H], group: str) {
  match { y = all_reduce(x, group) }
  replace { y = plan.reduced(x, group) }
  where { is_wanted(7); tokens <= 64 }
  after reduced
}
"""
NO_SITE = """\
rule     can fire  tokens  ends ranges at  why not, or what is left to decide
reduced  no site   1..256                  the engine has one rank
wanted   no site   1..64                   the engine has one rank
"""
OPEN = """\
rule     can fire  tokens  ends ranges at  why not, or what is left to decide
reduced  yes       1..256             256
wanted   open      1..64               64  nobody answers is_wanted(n = 7) (--answer would tell)
"""


def test_what_has_no_site_in_the_model(run: Run, model: str) -> None:
    Path("reduced.fuse").write_text(REDUCED)
    words = ("plan", "reduced.fuse", "--model", model, "--max-tokens", "512")
    assert run(*words).out.startswith(NO_SITE)
    done = run(*words, "--tp", "2")
    assert done.out.startswith(OPEN)
    assert done.out.endswith("compile ranges: 1..64, 65..256, 257..512\n")
    rows = json.loads(run(*words, "--format", "json").out)["rules"]
    assert [(row["end_points"], row["left_out"], row["why_end_points"]) for row in rows] == [
        ([], [256], "out: the engine has one rank"),
        ([], [64], "out: the engine has one rank"),
    ]
    rows = json.loads(run(*words, "--tp", "2", "--format", "json").out)["rules"]
    assert {row["why_end_points"] for row in rows} == {"in: nothing known rules a site out"}


def test_of_a_model_that_is_not_known_nothing_is_assumed(run: Run, model: str) -> None:
    own = {**MODEL, "architectures": ["SomebodysForCausalLM"]}
    Path(model, "config.json").write_text(json.dumps(own))
    Path("reduced.fuse").write_text(REDUCED)
    done = run("plan", "reduced.fuse", "--model", model)
    assert done.out.startswith(OPEN)
    assert done.out.endswith(
        "nothing is assumed of SomebodysForCausalLM: any rule may have a site\n"
    )
    Path(model, "config.json").write_text(json.dumps({**MODEL, "architectures": None}))
    done = run("plan", "reduced.fuse", "--model", model)
    assert done.out.endswith("of a model without `architectures`: any rule may have a site\n")


def test_a_model_of_32_bits_is_served_in_16(run: Run, model: str) -> None:
    Path(model, "config.json").write_text(json.dumps({**MODEL, "torch_dtype": "float32"}))
    assert plan(run, "--model", model) == PLAN


def test_ranks_of_any_kind(run: Run, model: str) -> None:
    Path("reduced.fuse").write_text(REDUCED)
    words = ("plan", "reduced.fuse", "--model", model, "--max-tokens", "512")
    for option in ("--pp", "--dp", "--tp"):
        assert run(*words, option, "2").out.startswith(OPEN)


def test_a_draft_model(run: Run, model: str) -> None:
    Path("reduced.fuse").write_text(REDUCED.replace("tokens <= 256", "tokens * H <= 8192"))
    words = ("plan", "reduced.fuse", "--model", model, "--tp", "2", "--max-tokens", "512")
    assert "reduced  yes       1..128 " in run(*words).out
    Path("draft.json").write_text(json.dumps({**MODEL, "hidden_size": 128}))
    done = run(*words, "--draft-model", "draft.json")
    assert "reduced  yes       1..64 " in done.out
    assert "model.hidden_size = 128" in done.out
    assert done.out.endswith(
        "the draft model is taken as it is: vLLM makes others of those for EAGLE, Medusa, MTP\n"
    )
    # Of a size that is not known nothing is assumed, and nothing of a model that is not.
    Path("draft.json").write_text(json.dumps({"architectures": ["MedusaModel"]}))
    done = run(*words, "--draft-model", "draft.json")
    assert "reduced  yes       any    " in done.out
    assert "nothing is assumed of LlamaForCausalLM, MedusaModel" in done.out
    Path("draft.json").write_text(json.dumps({**MODEL, "num_attention_heads": 5}))
    done = run(*words, "--draft-model", "draft.json")
    assert "error[FD726]: 5 attention heads cannot be split over 2 ranks" in done.err
    assert "draft.json" in done.err


WRONG_SIZE = """\
error[FD726]: `hidden_size` is "big", which is no size
 --> model/config.json:3:18
  |
3 |   "hidden_size": "big",
  |                  ^^^^^
  |
  = note: in `model/config.json`
"""
TWO_RANKS = """\
error[FD726]: 5 attention heads cannot be split over 2 ranks
 --> model/config.json:3:26
  |
3 |   "num_attention_heads": 5
  |                          ^
  |
  = note: in `model/config.json`
"""
BROKEN = """\
error[FD724]: `model/config.json` is no JSON: Expecting value
 --> model/config.json:2:18
  |
2 |   "hidden_size": oops
  |                  ^
  |
  = help: give a directory with a `config.json`, or such a file
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['"a": 1', '"hidden_size": "big"', '"b": 1'], WRONG_SIZE),
        (['"hidden_size": 64', '"num_attention_heads": 5'], TWO_RANKS),
        (['"hidden_size": oops'], BROKEN),
    ],
)
def test_what_is_wrong_is_shown_in_its_place(
    run: Run, model: str, lines: list[str], expected: str
) -> None:
    text = "{\n  " + ",\n  ".join(lines) + "\n}\n"
    Path(model, "config.json").write_text(text)
    done = run("plan", "pack.fuse", "--model", model, "--tp", "2")
    assert done.code == Exit.USAGE
    assert done.err.startswith(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": -4}, "`hidden_size` is -4, which is no size"),
        ({"hidden_size": True}, "`hidden_size` is true, which is no size"),
        ({"num_attention_heads": 1.5}, "`num_attention_heads` is 1.5, which is no size"),
        ({"architectures": "Llama"}, "`architectures` is no list of names"),
        ({"architectures": [1]}, "`architectures` is no list of names"),
        ({"text_config": [1]}, "`text_config` is no object"),
        ({"torch_dtype": "int4"}, '`torch_dtype` is "int4", which is no dtype of activations'),
        ({"torch_dtype": None, "dtype": ["x"]}, '`dtype` is ["x"], which is no dtype'),
        ({"speculators_config": {}}, "`speculators_config` makes it a draft, for which vLLM loads"),
    ],
)
def test_values_that_no_engine_takes(
    run: Run, model: str, changes: dict[str, object], message: str
) -> None:
    Path(model, "config.json").write_text(json.dumps({**MODEL, **changes}))
    done = run("plan", "pack.fuse", "--model", model)
    assert done.code == Exit.USAGE
    assert f"error[FD726]: {message}" in done.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "is nested too deeply"),
        ('{"hidden_size": 1' + "0" * 5000 + "}", "is refused: "),
        ("", "is no JSON: "),
    ],
)
def test_a_configuration_that_no_json_reader_takes(
    run: Run, model: str, content: str, message: str
) -> None:
    Path(model, "config.json").write_text(content)
    done = run("plan", "pack.fuse", "--model", model)
    assert done.code == Exit.USAGE
    assert message in done.err


@pytest.mark.parametrize("name", ["nowhere", "x" * 5000, "", "a\0b", "pack.fuse"])
def test_a_model_that_is_not_there(run: Run, model: str, name: str) -> None:
    done = run("plan", "pack.fuse", "--model", name)
    assert done.code == Exit.USAGE
    assert "error[FD724]: " in done.err


def test_no_token_count_is_left(run: Run, model: str) -> None:
    text = Path("pack.fuse").read_text().replace("64 KiB", "64 KiB and tokens > 9000")
    Path("none.fuse").write_text(text.replace("example { tokens = 7", "# example { tokens = 7"))
    done = run("plan", "none.fuse", "--model", model, "--target", "gfx950", "--max-tokens", "4096")
    assert "no        " in done.out
    assert "hold for no number of tokens" in done.out
    assert done.out.endswith("compile ranges: 1..4096\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the model's configuration `here/config.json`: No such file"),
        ("{", "`here/config.json` is no JSON:"),
        ("[]", "`here/config.json` is no configuration of a model: it is no object"),
    ],
)
def test_a_model_that_cannot_be_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    if content is not None:
        (tmp_path / "here" / "config.json").write_text(content)
    (tmp_path / "empty.fuse").write_text("")
    done = run("plan", "empty.fuse", "--model", "here")
    assert done.code == Exit.USAGE
    assert f"error[FD724]: {message}" in done.err
    assert "give a directory with a `config.json`, or such a file" in done.err
