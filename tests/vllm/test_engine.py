"""Rules in a real vLLM engine on the CPU: every start is a process of its own, one at a time.

With `FUSIONDSL_ENGINES=all` every model is run; else the one that shows most: static FP8 on one
rank and on two, cold, warm, and with another rule.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.vllm.cpu_engine.start import EVERY, PYTHON, ROOT, Engines, Outcome
from tests.vllm.engines import (
    CUSTOM,
    F32,
    GPU_OPS,
    ONE_GRAPH,
    PACKS,
    PIECES,
    REFERENCES,
    SHIPPED,
    STATIC,
    WITHOUT_SILU,
    compiled,
    fired,
    same_text,
    unfused,
)

OWN_KERNELS = ROOT / "benchmarks" / "rules" / "static_quant.fuse"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PYTHON is None,
        reason="vLLM is not installed here, and FUSIONDSL_VLLM_PYTHON names no Python that has it",
    ),
]
every = pytest.mark.skipif(not EVERY, reason="FUSIONDSL_ENGINES is not `all`")


# --- which rules fire, and that nothing else changes ---------------------------------------------


def static_f32(engines: Engines, rules: Path) -> Outcome:
    """A start with the cache of all that test whether one is taken."""
    return engines.start(
        "llama_fp8_static",
        variables={**GPU_OPS, **F32, "FUSIONDSL_RULES": str(rules)},
        compilation=CUSTOM,
        dtype="float32",
        cache="static",
    )


@pytest.fixture(scope="module")
def cold(engines: Engines) -> Outcome:
    return static_f32(engines, PACKS / "f32.fuse")


def test_no_code(engines: Engines, cold: Outcome) -> None:
    assert cold["counts"] == STATIC
    assert cold["table"] == {f"fusiondsl.{rule}": count for rule, count in STATIC.items()}
    assert [piece["tokens"] for piece in cold["pieces"]] == [[1, 256]]
    assert same_text(cold, unfused(engines))
    lines = [line for line in cold.log.splitlines() if "] fusiondsl: " in line]
    assert len(lines) == 1
    assert "rewrote 12 sites in 1 graphs: add_rms_norm_static_quant 7" in lines[0]
    assert "3 of 5 rules can fire" in lines[0]


def test_a_warm_start_and_one_with_another_literal(
    engines: Engines, cold: Outcome, tmp_path: Path
) -> None:
    """The same rules elsewhere are the same; with a number changed they are others."""
    assert (compiled(cold), cold["from_cache"]) == (True, False)
    rules = tmp_path / "copied.fuse"
    text = (PACKS / "f32.fuse").read_text()
    rules.write_text(text)
    warm = static_f32(engines, rules)
    assert (compiled(warm), warm["from_cache"]) == (False, True)
    assert warm["counts"] == STATIC
    assert "rewrote 12 sites in 1 graphs (from vLLM's cache)" in warm.log

    narrower = text.replace("WIDEST = 4096", "WIDEST = 256")
    assert narrower != text
    rules.write_text(narrower)
    changed = static_f32(engines, rules)
    assert (compiled(changed), changed["from_cache"]) == (True, False)
    assert changed["counts"] == WITHOUT_SILU
    for outcome in (warm, changed):
        assert same_text(outcome, unfused(engines))


@every
def test_in_the_configuration_of_an_engine_in_another_process(engines: Engines) -> None:
    ours = engines.start(
        "llama_fp8_static",
        variables={**GPU_OPS, **REFERENCES, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
        config={"rules": [str(PACKS / "f32.fuse")], "facts": {"env.arch": "gfx950"}},
        compilation={**CUSTOM, **PIECES},
        dtype="float32",
    )
    assert same_text(ours, unfused(engines))
    assert "rewrote 12 sites in 5 graphs" in ours.log


@every
def test_inside_a_pass_of_vllm(engines: Engines) -> None:
    patterns = {"CPU_ENGINE_PATTERNS": f"{PACKS / 'f32.fuse'},env.arch=gfx950"}
    ours = engines.start(
        "llama_fp8_static",
        variables={**GPU_OPS, **REFERENCES, **patterns},
        compilation=CUSTOM,
        dtype="float32",
    )
    # 4 by a pattern written by hand, which is registered first, and 8 by the rules.
    assert ours["table"] == {"pattern_pass": 12}
    assert same_text(ours, unfused(engines))


TWO = {**SHIPPED, "FUSIONDSL_FACTS": "env.arch=gfx950,env.aiter_dynamic_hidden=true"}
GEMMA = {"allreduce_add_gemma_rms_norm": 6}
"""The rules for a plain norm leave a weight of `1 + w` alone."""

TABLE: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    (
        "llama_fp8_static",
        {"variables": {**SHIPPED, **GPU_OPS}, "compilation": CUSTOM},
        STATIC,
    ),
    (
        "llama_fp8_token",
        {"variables": SHIPPED, "compilation": ONE_GRAPH},
        {"add_rms_norm_per_token_quant": 7, "rms_norm_per_token_quant": 1},
    ),
    (
        "llama_int8",
        {
            "variables": {
                **REFERENCES,
                "CPU_ENGINE_ONEDNN": "1",
                "FUSIONDSL_RULES": str(PACKS / "int8.fuse"),
            },
            "compilation": ONE_GRAPH,
        },
        {"add_rms_norm_int8_quant": 7, "rms_norm_int8_quant": 1},
    ),
    # Rows of 512 bytes: the kernel takes at most 80 of them.
    (
        "qwen3",
        {"variables": TWO, "compilation": ONE_GRAPH, "tp": 2},
        {"allreduce_add_rms_norm": 6, "allreduce_rms_norm": 1},
    ),
    ("gemma", {"variables": TWO, "compilation": ONE_GRAPH, "tp": 2}, GEMMA),
    (
        "qwen3_moe",
        {"variables": TWO, "compilation": ONE_GRAPH, "tp": 2},
        {"allreduce_add_rms_norm": 6, "allreduce_rms_norm": 1},
    ),
    # Three layers, in one range: rules that can have no site in this model end none.
    ("deepseek", {"variables": SHIPPED, "compilation": ONE_GRAPH}, {"mla_dual_rms_norm": 3}),
]


@every
@pytest.mark.parametrize(("model", "options", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_sites(
    engines: Engines, model: str, options: dict[str, Any], expected: dict[str, int]
) -> None:
    assert fired(engines.start(model, **options)) == expected


# --- two ranks -----------------------------------------------------------------------------------


TWO_RANKS: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    # One all-reduce goes before a norm without a residual.
    ("llama", {"compilation": ONE_GRAPH}, {"allreduce_add_rms_norm": 8}),
    # That norm is quantised all the same, and the last one is not.
    (
        "llama_fp8_static",
        {"variables": GPU_OPS, "compilation": CUSTOM},
        {
            "allreduce_add_rms_norm": 1,
            "allreduce_add_rms_norm_static_quant": 7,
            "rms_norm_static_quant": 1,
            "silu_mul_static_quant": 4,
        },
    ),
]


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        pytest.param(*row, id=row[0], marks=[] if row[0] == "llama_fp8_static" else [every])
        for row in TWO_RANKS
    ],
)
def test_two_ranks(
    engines: Engines, model: str, options: dict[str, Any], expected: dict[str, int]
) -> None:
    shared = {"dtype": "float32", "tp": 2, "compilation": options["compilation"]}
    variables = options.get("variables", {})
    ours = engines.start(model, variables={**variables, **F32}, **shared)
    assert same_text(ours, engines.start(model, variables=variables, **shared))
    assert fired(ours) == expected
    assert f"rewrote {sum(expected.values())} sites in 1 graphs: " in ours.log


# --- beside vLLM's own passes --------------------------------------------------------------------


@every
@pytest.mark.parametrize(
    ("variables", "by_us", "by_vllm"),
    [
        ({"CPU_ENGINE_VLLM_PASSES": "1"}, {}, 12),
        ({"CPU_ENGINE_VLLM_PASSES": "1", **F32}, {}, 12),
        ({"CPU_ENGINE_VLLM_PASSES": "1", **F32, "FUSIONDSL_PLACE": "before"}, STATIC, 0),
    ],
    ids=["vllm", "after", "before"],
)
def test_vllms_own_fusions(
    engines: Engines, variables: dict[str, str], by_us: dict[str, int], by_vllm: int
) -> None:
    """Whoever comes first fuses, every site is fused once, and the text is the same."""
    ran = engines.start(
        "llama_fp8_static",
        variables={**GPU_OPS, **variables},
        compilation=CUSTOM,
        dtype="float32",
    )
    assert ran["matched"] == {
        "RMSNormQuantFusionPass": by_vllm and 8,
        "ActivationQuantFusionPass": by_vllm and 4,
    }
    assert (ran.result.get("counts") or {}) == by_us
    assert same_text(ran, unfused(engines))


@every
def test_vllms_own_fusions_in_bf16(engines: Engines) -> None:
    """With rules for the kernels that vLLM's passes call, both give one text to the last bit."""
    passes, rules = {"CPU_ENGINE_VLLM_PASSES": "1"}, {"FUSIONDSL_RULES": str(OWN_KERNELS)}
    theirs, ours = (
        engines.start("llama_fp8_static", variables={**GPU_OPS, **given}, compilation=CUSTOM)
        for given in (passes, rules)
    )
    assert theirs["matched"] == {"RMSNormQuantFusionPass": 8, "ActivationQuantFusionPass": 4}
    assert ours["counts"] == {
        "add_rms_norm_static_quant": 7,
        "rms_norm_static_quant": 1,
        "silu_and_mul_static_quant": 4,
    }
    assert (ours["tokens"], ours["logprobs"]) == (theirs["tokens"], theirs["logprobs"])


# --- token ranges and caches ---------------------------------------------------------------------

SIXTEEN, SEVENTEEN = list(range(3, 19)), list(range(3, 20))


def limited(engines: Engines, rules: Path | None, cache: str) -> Outcome:
    """A start with a cache that the starts of a test share."""
    variables = {} if rules is None else {"FUSIONDSL_RULES": str(rules)}
    return engines.start(
        "llama",
        variables=variables,
        compilation=ONE_GRAPH,
        dtype="float32",
        cache=cache,
        prompts=[SIXTEEN, SEVENTEEN],
        installed=rules is not None,
    )


def cold_and_warm(engines: Engines, rules: Path, cache: str) -> tuple[Outcome, Outcome]:
    cold = limited(engines, rules, cache)
    assert cold["ends"] == [16, 256]
    pieces = {tuple(piece["tokens"]): piece["fired"] for piece in cold["pieces"]}
    assert pieces == {(1, 16): {"add_rms_norm": 8}, (17, 256): {}}
    # Both prompts, and then token by token; whatever is larger does not call the fused op.
    assert {1, 16} <= {int(rows) for rows in cold["calls"]}
    assert max(map(int, cold["calls"])) == 16
    assert (compiled(cold), cold["from_cache"]) == (True, False)

    warm = limited(engines, rules, cache)
    assert (compiled(warm), warm["from_cache"]) == (False, True)
    assert warm["counts"] == cold["counts"]
    assert warm["calls"] == cold["calls"]
    assert "rewrote 8 sites in 2 graphs (from vLLM's cache)" in warm.log
    return cold, warm


@every
def test_a_limit_on_tokens_another_limit_and_no_rules(engines: Engines, tmp_path: Path) -> None:
    rules = tmp_path / "limited.fuse"
    text = (PACKS / "limited.fuse").read_text()
    rules.write_text(text)
    cache = "limited"
    cold, warm = cold_and_warm(engines, rules, cache)
    rules.write_text(text.replace("MOST = 16", "MOST = 12"))
    changed = limited(engines, rules, cache)
    assert changed["ends"] == [12, 256]
    assert (compiled(changed), changed["from_cache"]) == (True, False)
    assert max(map(int, changed["calls"])) <= 12

    removed = limited(engines, None, cache)
    assert compiled(removed)
    assert removed["calls"] == {}
    for outcome in (cold, warm, changed):
        assert same_text(outcome, removed)


# --- what is wrong is said before the model is loaded --------------------------------------------


def refused(engines: Engines, variables: dict[str, str], **options: Any) -> str:
    ran = engines.start("llama", variables=variables, **options)
    assert ran.code != 0
    return ran.log


def test_broken_rules(engines: Engines, tmp_path: Path) -> None:
    rules = tmp_path / "broken.fuse"
    rules.write_text("rule broken(x: D[t..]) {\n  match { y = rely(x) }\n  replace { y = x }\n}\n")
    log = refused(engines, {"FUSIONDSL_RULES": str(rules)})
    assert "RulesRefused" in log
    assert "broken.fuse:2:15" in log
    assert "  |               ^^^^" in log
    assert "Loading weights" not in log


@every
def test_missing_rules_and_wrong_settings(engines: Engines) -> None:
    log = refused(engines, {"FUSIONDSL_RULES": "nowhere.fuse"})
    assert "RulesRefused" in log
    assert "nowhere.fuse" in log
    log = refused(engines, {"FUSIONDSL_RULES": "fusiondsl:rocm_aiter", "FUSIONDSL_STRICT": "7"})
    assert "error[FD720]: `7` is neither 1 nor 0" in log


@every
def test_a_required_rule_that_does_not_fire(engines: Engines) -> None:
    required = {"FUSIONDSL_REQUIRE": "add_rms_norm_group_quant,allreduce_add_rms_norm"}
    log = refused(engines, {**SHIPPED, **required}, compilation=ONE_GRAPH)
    assert "error[FD721]: the rule `add_rms_norm_group_quant` is required and did not fire" in log
    assert "error[FD721]: the rule `allreduce_add_rms_norm` is required and did not fire" in log
    assert "= note: env.tp_size is 1, not in (2, 4, 8)" in log
