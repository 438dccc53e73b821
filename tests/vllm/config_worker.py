"""What becomes of rules in vLLM's configuration, as JSON; run by a Python that has vLLM.

With two arguments, a rank and a file: two ranks compare their digests.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed, fx
from vllm.compilation.passes.inductor_pass import InductorPass
from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.attention import Attention

import fusiondsl
from fusiondsl import Target, artifact
from fusiondsl.integrations.vllm import VllmFusionPass, fusion_pass, hooks, layers, plugin
from fusiondsl.integrations.vllm.layers import answers_of

PACK = Path(__file__).parent / "packs" / "limited.fuse"
POST, PRE = "post_grad_custom_post_pass", "post_grad_custom_pre_pass"


ASKING = """
extern predicate custom_op(name: str)
extern predicate quantization(method: str)
op asking.relu(x: D[t.., H]) -> (y: D[t.., H]) { means { y = relu(x) } }
rule custom(x: D[t.., H]) {
  match   { y = relu(x) }
  replace { y = asking.relu(x) }
  where   { custom_op("silu_and_mul") }
}
rule quantised(x: D[t.., H]) {
  match   { y = relu(x) }
  replace { y = asking.relu(x) }
  where   { quantization("fp8") }
  after   custom
}
"""


class Counting(InductorPass):  # type: ignore[misc]
    """A pass of a user."""

    ran = 0

    def __call__(self, graph: fx.Graph) -> None:
        Counting.ran += 1


class Anonymous:
    def __call__(self, graph: fx.Graph) -> None:
        raise AssertionError

    def uuid(self) -> None:
        return None


def configured(rules: str | None, slots: dict[str, Any] | None = None, **others: Any) -> VllmConfig:
    os.environ.pop("FUSIONDSL_RULES", None)
    if rules is not None:
        os.environ["FUSIONDSL_RULES"] = rules
    given = CompilationConfig(inductor_compile_config=slots or {}, mode=3, **others)
    return VllmConfig(compilation_config=given)


def slots_of(config: VllmConfig) -> dict[str, Any]:
    return dict(config.compilation_config.inductor_compile_config)


def refusal(rules: str, **options: Any) -> str:
    try:
        configured(rules, **options)
    except hooks.RulesRefused as error:
        return str(error)
    return ""


def variant(directory: Path, name: str, old: str = "", new: str = "") -> str:
    path = directory / name
    path.write_text(PACK.read_text().replace(old, new) if old else PACK.read_text())
    return str(path)


def in_configuration(directory: Path) -> dict[str, Any]:
    # As vLLM does, once a process, and then the variable is set.
    plugin.register()
    without = configured(None)
    waiting = not hooks._installed
    plain = configured(str(PACK))
    most = plain.scheduler_config.max_num_batched_tokens
    made = slots_of(plain)[POST]
    elsewhere = configured(variant(directory, "elsewhere.fuse"))
    literal = configured(variant(directory, "literal.fuse", "D in (f32, bf16)", "D in (f32, f16)"))
    fused = directory / "limited.fused"
    fused.write_bytes(artifact.dumps(made.program, Target()))
    os.environ["FUSIONDSL_DRY_RUN"] = "1"
    dry = configured(str(PACK))
    del os.environ["FUSIONDSL_DRY_RUN"]
    os.environ["FUSIONDSL_PLACE"] = "before"
    before = configured(str(PACK))
    del os.environ["FUSIONDSL_PLACE"]
    own = fusion_pass(PACK, facts={"env.arch": "gfx942"})
    both = configured("nowhere.fuse", {POST: own})
    chained = slots_of(configured(str(PACK), {POST: Counting()}))[POST]
    graph = fx.Graph()
    graph.output(())
    chained(graph)
    packed = configured(str(fused))
    again = copy.deepcopy(plain)
    again._set_compile_ranges()
    return {
        "waiting": [waiting, slots_of(without).keys().isdisjoint((POST, PRE))],
        "most": most,
        "ends": plain.compilation_config.compile_ranges_endpoints,
        "with_own": configured(
            str(PACK), compile_ranges_endpoints=[64]
        ).compilation_config.compile_ranges_endpoints,
        "facts": made.target.known(),
        "kinds": [
            isinstance(made, VllmFusionPass),
            [slot for slot in (POST, PRE) if slot in slots_of(before)],
        ],
        "hashes": [
            config.compilation_config.compute_hash()
            for config in (plain, elsewhere, packed, literal, dry, without)
        ],
        "uuids": [
            made.uuid(),
            copy.deepcopy(made).uuid(),
            pickle.loads(pickle.dumps(made)).uuid(),
            slots_of(again)[POST].uuid(),
        ],
        "kept": slots_of(configured(str(PACK)))[POST].program is made.program,
        "own": [slots_of(both)[POST].target.arch, slots_of(both)[POST].from_environment],
        "chained": [Counting.ran, chained.uuid() != made.uuid()],
        "asked": [eligible(["none", "+silu_and_mul"]), eligible(["all", "-silu_and_mul"])],
        "layers": asked_of_layers(),
        "device": refused_device(),
        "anonymous": refusal(str(PACK), slots={POST: Anonymous()}),
        "missing": refusal("nowhere.fuse"),
    }


def eligible(custom_ops: list[str]) -> list[str]:
    config = configured(None, custom_ops=custom_ops)
    program = fusiondsl.load_source(ASKING).program
    target = Target(answers=answers_of(program, (), config))
    return [rule.name for rule in fusiondsl.CompiledRules(program, target).compiled.rules]


def answered(*kinds: str, attn_type: str = "decoder") -> list[Any]:
    """What is said of layers with these implementations."""
    config = configured(None)
    homes = {kind.rpartition(".")[2]: kind.rpartition(".")[0] for kind in layers._KEYS_FROM_CACHE}
    for place, kind in enumerate(kinds):
        layer = object.__new__(Attention)
        torch.nn.Module.__init__(layer)
        layer.impl = type(kind, (), {"__module__": homes.get(kind, "elsewhere")})()
        layer.attn_type = attn_type
        config.compilation_config.static_forward_context[f"layers.{place}"] = layer
    program = fusiondsl.load("fusiondsl:ops/kv_cache.fuse").program
    return [(answer.args["l"], answer.value) for answer in answers_of(program, (), config)]


def asked_of_layers() -> dict[str, Any]:
    unified, flash = "RocmAiterUnifiedAttentionImpl", "AiterFlashAttentionImpl"
    return {
        "unified": answered(unified, unified),
        "mixed": answered(unified, flash),
        "unknown": answered(unified, "TritonAttentionImpl"),
        "encoder": answered(unified, attn_type="encoder_only"),
    }


def refused_device() -> str:
    """A rank whose device is not what the driver said."""
    os.environ["FUSIONDSL_RULES"] = str(PACK)
    one = slots_of(configured(str(PACK)))[POST]
    one = one.with_target(replace(one.target, facts={**one.target.known(), "env.cu_count": 304}))
    hooks.units_of_this_rank = lambda: 38
    try:
        hooks._check_device(one)
    except hooks.RulesRefused as error:
        return str(error)
    return ""


def agreement(rank: int, file: str) -> dict[str, Any]:
    import vllm.distributed

    hooks.install()
    distributed.init_process_group("gloo", f"file://{file}", rank=rank, world_size=2)
    group = SimpleNamespace(cpu_group=distributed.group.WORLD)
    vllm.distributed.get_world_group = lambda: group
    found = []
    for rules in (str(PACK), os.environ["OTHER_RULES"]):
        config = configured(rules)
        with set_current_vllm_config(config):
            try:
                hooks._agree(slots_of(config)[POST], config)
                found.append("")
            except hooks.RulesRefused as error:
                found.append(str(error))
    # Its threads may outlive the interpreter otherwise, which then ends in an abort.
    distributed.destroy_process_group()
    return {"said": found}


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(agreement(int(sys.argv[1]), sys.argv[2])))
    else:
        print(json.dumps(in_configuration(Path(sys.argv[1]))))
