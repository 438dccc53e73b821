"""End points of compile ranges for real configurations: those of rules that can have a site."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fusiondsl.cli.main import main
from fusiondsl.integrations.vllm.outlook import EXPERTS, HEAD_NORMS, KEYS, LATENT, MODELS, OWN_FP8
from tests.vllm.cpu_engine.start import PYTHON, ROOT, printed, worker

PACK = ROOT / "tests" / "vllm" / "packs" / "bounded.fuse"
BOUNDS = {
    "normed": 10,
    "reduced": 20,
    "reduced_wide": 30,
    "reduced_f32": 40,
    "experts": 50,
    "latent": 60,
    "turned": 70,
    "sections": 80,
    "codes": 90,
    "cached": 100,
    "custom": 110,
    "quantised": 120,
}
_PARTITION = ("--graph-partition",)
_ROTARY = (*_PARTITION, "--custom-ops", "none,+rotary_embedding")
_TP = ("--tp", "2")

CASES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # The rules that have a site, and the options of `plan` that say the same.
    "llama_fp8_static": (("normed", "codes", "quantised"), ()),
    "llama_fp8_static tp=2": (("normed", "reduced", "codes", "quantised"), _TP),
    "llama_fp8_static partition": (
        ("normed", "codes", "cached", "custom", "quantised"),
        _ROTARY,
    ),
    "llama": (("normed",), ()),
    "llama f32 tp=2": (("normed", "reduced", "reduced_f32"), (*_TP, "--dtype", "float32")),
    "llama fp8 cache": (("normed", "codes"), ("--kv-cache-dtype", "fp8")),
    "qwen3 partition": (("normed", "turned", "cached", "custom"), _ROTARY),
    "qwen3_moe tp=2": (("normed", "reduced", "experts"), _TP),
    "qwen3_moe partition": (("normed", "experts", "cached"), _PARTITION),
    "deepseek": (("normed", "experts", "codes"), ()),
    "deepseek partition": (("normed", "experts", "latent", "codes", "cached", "custom"), _ROTARY),
    "llama pp=2": (("normed", "reduced"), ("--pp", "2")),
    "llama dp=2": (("normed", "reduced"), ("--dp", "2")),
    "llama draft": (("normed", "turned", "cached", "custom"), _ROTARY),
    "stranger": (
        tuple(name for name in BOUNDS if name not in ("custom", "quantised")),
        _PARTITION,
    ),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="vLLM is not installed here"),
]


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A directory with models, and what became of their configurations."""
    directory = tmp_path_factory.mktemp("ends")
    return directory, printed(worker(directory, "tests.vllm.ends_worker", str(directory)))


def _ends(rules: tuple[str, ...], most: int) -> list[int]:
    return [*sorted(BOUNDS[name] for name in rules), most]


@pytest.mark.parametrize("name", CASES)
def test_rules_without_a_site_end_no_range(
    configured: tuple[Path, dict[str, Any]], name: str
) -> None:
    seen = configured[1][name]
    rules, _ = CASES[name]
    assert seen["ends"] == _ends(rules, seen["ends"][-1])
    assert sorted(seen["left_out"]) == sorted(BOUNDS.keys() - set(rules))


@pytest.mark.parametrize("name", [name for name in CASES if "tp=2" in name])
def test_all_ranks_leave_out_the_same(configured: tuple[Path, dict[str, Any]], name: str) -> None:
    assert configured[1][name]["ranks"] == [configured[1][name]["digest"]] * 2


def test_end_points_are_part_of_what_vllm_hashes(
    configured: tuple[Path, dict[str, Any]],
) -> None:
    with_sites, without = configured[1]["hashes"]
    assert with_sites != without


@pytest.mark.parametrize("name", CASES)
def test_the_plan_says_the_same(
    configured: tuple[Path, dict[str, Any]], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, found = configured
    rules, options = CASES[name]
    model = directory / name.split()[0].replace("stranger", "llama")
    if name == "stranger":
        strange = json.loads((model / "config.json").read_text())
        model = directory / "stranger.json"
        model.write_text(json.dumps({**strange, "architectures": ["Stranger"]}))
    if name == "llama draft":
        options = (*options, "--draft-model", str(directory / "qwen3"))
    if "--custom-ops" not in options:
        options = (*options, "--custom-ops", "none")
    most = found[name]["ends"][-1]
    answers = [
        f'custom_op(name = "rotary_embedding")={str("custom" in rules).lower()}',
        f'quantization(method = "fp8")={str("quantised" in rules).lower()}',
    ]
    words = ["plan", str(PACK), "--model", str(model), "--max-tokens", str(most), *options]
    words += ["--fact", "env.aiter=false", "--format", "json"]
    assert main([*words, *(word for answer in answers for word in ("--answer", answer))]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [*planned["end_points"], most] == found[name]["ends"]
    for row in planned["rules"]:
        if row["left_out"]:
            assert row["why_end_points"] == f"out: {found[name]['left_out'][row['rule']]}"


@pytest.mark.parametrize("name", ["llama_fp8_static partition", "llama"])
def test_an_artifact_with_other_answers_than_the_layers(
    configured: tuple[Path, dict[str, Any]], name: str
) -> None:
    """Its rules have the end points of the same text: what layers answer decides."""
    seen, text = configured[1]["contradicted"], configured[1][name]
    assert seen[name]["ends"] == text["ends"]
    assert seen[name]["left_out"] == text["left_out"]
    assert seen[name]["kept"] == ["is_mine"]
    assert ("partition" in name) == (True in seen[name]["custom"])
    said = "answers to custom_op, quantization are those of layers, not of the artifact"
    assert seen["logged"] == [f"fusiondsl: {said}"] * 2


@pytest.mark.parametrize("model", ["llama_fp8_static", "qwen3", "deepseek"])
def test_the_shipped_rules_for_norms_of_heads(
    configured: tuple[Path, dict[str, Any]], model: str
) -> None:
    """On a GPU, where attention has the kernels; here it has none, and no range ends for them."""
    turning = ["qk_norm_rope_kv_cache_update", "qk_norm_mrope_kv_cache_update"]
    expected = turning[1:] if model == "qwen3" else turning
    seen = configured[1][f"shipped, {model} partition"]
    assert sorted(seen["turning"]) == sorted(expected)
    assert len(seen["ends"]) == 1


def test_what_the_table_says_of_models_is_what_their_code_says(
    configured: tuple[Path, dict[str, Any]],
) -> None:
    """Names of norms of heads, and of FP8, stand in the code of models that have them, alone."""
    sources: dict[str, str] = configured[1]["sources"]
    assert sources.keys() == MODELS.keys()
    for name, text in sources.items():
        switched = any(key in text for key, adds in KEYS.items() if HEAD_NORMS in adds)
        normed = re.search(r"\b[qk]_norm\b", text) is not None
        assert not normed or HEAD_NORMS in MODELS[name] or switched, name
        assert "fp8" not in text.lower() or OWN_FP8 in MODELS[name], name
        assert not re.search(r"experts|moe", text.lower()) or EXPERTS in MODELS[name], name
        assert "mla" not in text.lower() or LATENT in MODELS[name], name
