"""Rules in a real vLLM engine on the CPU: every start is a process of its own, one at a time.

With `FUSIONDSL_ENGINES=all` every model is run; else the one that shows most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.vllm.cpu_engine.start import EVERY, PYTHON, SHARED_MEMORY, Engines, Outcome

PACKS = Path(__file__).parent / "packs"
REFERENCES = {"FUSIONDSL_REFERENCE_OPS": "1"}
SHIPPED = {
    **REFERENCES,
    "FUSIONDSL_RULES": "fusiondsl:rocm_aiter",
    "FUSIONDSL_FACTS": "env.arch=gfx950",
}
F32 = {
    **REFERENCES,
    "FUSIONDSL_RULES": str(PACKS / "f32.fuse"),
    "FUSIONDSL_FACTS": "env.arch=gfx950",
}
GPU_OPS = {"CPU_ENGINE_GPU_OPS": "1", "CPU_ENGINE_F32": "1"}
ONE_GRAPH = {"use_inductor_graph_partition": True}
PIECES: dict[str, Any] = {"use_inductor_graph_partition": False}
CUSTOM = {**ONE_GRAPH, "custom_ops": ["+quant_fp8", "+silu_and_mul"]}
STATIC = {"add_rms_norm_static_quant": 7, "rms_norm_static_quant": 1, "silu_mul_static_quant": 4}
"""Four layers have two norms each, and one comes last; that one and the first differ."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PYTHON is None,
        reason="vLLM is not installed here, and FUSIONDSL_VLLM_PYTHON names no Python that has it",
    ),
]
every = pytest.mark.skipif(not EVERY, reason="FUSIONDSL_ENGINES is not `all`")


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with TemporaryDirectory() as root:
        made = Engines(Path(root))
        made.start = cache_of(made.start)  # type: ignore[method-assign]
        yield made


def cache_of(start: Any) -> Any:
    """Tests share starts that are equal, unless they name a cache."""
    known: dict[str, Outcome] = {}

    def started(model: str, **options: Any) -> Outcome:
        key = f"{model} {sorted(options.items(), key=lambda item: item[0])}"
        if "cache" in options or key not in known:
            known[key] = start(model, **options)
        return known[key]

    return started


def same_text(one: Outcome, other: Outcome) -> bool:
    """Greedy tokens are equal, and log-probabilities as good as equal."""
    assert one["tokens"] == other["tokens"]
    ours = [value for text in one["logprobs"] for value in text]
    theirs = [value for text in other["logprobs"] for value in text]
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) <= 1e-4


def fired(outcome: Outcome) -> dict[str, int]:
    """What the one line of the start says: workers of several ranks are other processes."""
    assert outcome.code == 0, outcome.log[-6000:]
    (line,) = [line for line in outcome.log.splitlines() if "] fusiondsl: " in line]
    listed = re.findall(r"[:,] (\w+) (\d+)(?=[,;])", line.partition(" sites in ")[2])
    return {rule: int(count) for rule, count in listed}


def unfused(engines: Engines) -> Outcome:
    return engines.start("llama_fp8_static", variables=GPU_OPS, compilation=CUSTOM, dtype="float32")


# --- which rules fire, and that nothing else changes ---------------------------------------------


def test_no_code(engines: Engines) -> None:
    ours = engines.start(
        "llama_fp8_static", variables={**GPU_OPS, **F32}, compilation=CUSTOM, dtype="float32"
    )
    assert ours["counts"] == STATIC
    assert ours["table"] == {f"fusiondsl.{rule}": count for rule, count in STATIC.items()}
    assert [piece["tokens"] for piece in ours["pieces"]] == [[1, 256]]
    assert same_text(ours, unfused(engines))
    lines = [line for line in ours.log.splitlines() if "] fusiondsl: " in line]
    assert len(lines) == 1
    assert "rewrote 12 sites in 1 graphs: add_rms_norm_static_quant 7" in lines[0]
    assert "3 of 4 rules can fire" in lines[0]


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
    # Three layers, in two ranges: for latent attention vLLM takes up to 2048 tokens.
    ("deepseek", {"variables": SHIPPED, "compilation": ONE_GRAPH}, {"mla_dual_rms_norm": 6}),
]


@every
@pytest.mark.parametrize(("model", "options", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_sites(
    engines: Engines, model: str, options: dict[str, Any], expected: dict[str, int]
) -> None:
    assert fired(engines.start(model, **options)) == expected


# --- two ranks -----------------------------------------------------------------------------------


@every
def test_two_ranks(engines: Engines) -> None:
    options: dict[str, Any] = {"compilation": ONE_GRAPH, "dtype": "float32", "tp": 2}
    ours = engines.start("llama", variables=F32, **options)
    assert same_text(ours, engines.start("llama", variables={}, **options))
    # One all-reduce goes before a norm without a residual.
    assert fired(ours) == {"allreduce_add_rms_norm": 8}
    assert "rewrote 8 sites in 1 graphs: " in ours.log
    assert not list(SHARED_MEMORY.glob("vllm_dist_*"))


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


def compiled(outcome: Outcome) -> bool:
    return "num_inductor_compiles" in outcome["counter"]


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
