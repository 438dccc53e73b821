"""One start of an engine, as a process: reads what to do from its argument, prints what came of it.

The last line is JSON. Run it with `start` of `tests.vllm.cpu_engine.start`.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

PROMPTS = ([*range(3, 20)], [7, 8, 9])


def main(more: Callable[[], dict[str, Any]] = dict) -> None:
    """`more` is asked at the end for what is to be printed beside all else."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    import vllm  # noqa: F401  what it costs is no part of a start

    imported = time.perf_counter()
    engine = started(spec)
    ready = time.perf_counter()
    printed({**generated(engine, spec), **seen(engine), **more(), "init": ready - imported})


def arguments(spec: dict[str, Any]) -> dict[str, Any]:
    """Of an engine."""
    compilation = dict(spec["compilation"])
    if spec["config"] is not None:
        from fusiondsl.integrations.vllm import fusion_pass

        given = dict(spec["config"])
        slot = given.pop("slot", "post_grad_custom_post_pass")
        compilation["inductor_compile_config"] = {slot: fusion_pass(*given.pop("rules"), **given)}
    return {
        "model": spec["model"],
        "load_format": spec["load_format"],
        "skip_tokenizer_init": True,
        "dtype": spec["dtype"],
        "max_model_len": 256,
        "max_num_batched_tokens": spec["max_tokens"],
        "max_num_seqs": 4,
        "seed": 0,
        "tensor_parallel_size": spec["tp"],
        "compilation_config": compilation,
        "enable_prefix_caching": False,
        **spec["engine"],
    }


def started(spec: dict[str, Any]) -> Any:
    from vllm import LLM

    return LLM(**arguments(spec))


def printed(row: dict[str, Any]) -> None:
    print(json.dumps(row))
    sys.stdout.flush()


def generated(engine: Any, spec: dict[str, Any]) -> dict[str, Any]:
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0.0, max_tokens=spec["tokens"], ignore_eos=True, detokenize=False, logprobs=1
    )
    prompts = [{"prompt_token_ids": ids} for ids in spec["prompts"] or PROMPTS]
    # One by one, so that a prompt is a batch of its own.
    requests = [engine.generate([prompt], sampling, use_tqdm=False)[0] for prompt in prompts]
    outputs = [request.outputs[0] for request in requests]
    return {
        "tokens": [list(output.token_ids) for output in outputs],
        "logprobs": [
            [
                step[token].logprob
                for token, step in zip(output.token_ids, output.logprobs, strict=True)
            ]
            for output in outputs
        ],
    }


def seen(engine: Any) -> dict[str, Any]:
    from vllm.compilation.counter import compilation_counter
    from vllm.compilation.passes.vllm_inductor_pass import get_match_table

    compilation = engine.llm_engine.vllm_config.compilation_config
    managers = sys.modules.get("tests.vllm.cpu_engine.managers")
    kernels = sys.modules.get("tests.vllm.cpu_engine.kernels")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    row = {
        "mode": int(compilation.mode),
        "ends": compilation.compile_ranges_endpoints,
        "custom_ops": compilation.custom_ops,
        "table": get_match_table(),
        "matched": dict(managers.MATCHED) if managers is not None else {},
        "counter": {k: v for k, v in vars(compilation_counter).items() if v},
        "calls": dict(kernels.CALLS) if kernels is not None else {},
        "compile_seconds": compilation.compilation_time,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }
    if "fusiondsl.integrations.vllm.reports" in sys.modules:
        start = sys.modules["fusiondsl.integrations.vllm.reports"].last_start()
        row["counts"] = start.counts
        row["from_cache"] = start.from_cache
        row["pieces"] = [asdict(piece) for piece in start.pieces]
    return row


if __name__ == "__main__":
    main()
