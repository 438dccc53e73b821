"""What engines live through, each in a process of its own that prints as `run` does.

`spec` is that of `run`."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import sys
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from tests.vllm.cpu_engine.run import arguments, generated, printed, seen, started


def in_turn(spec: dict[str, Any]) -> None:
    """One engine after the other; `lives` has the variables of each."""
    from vllm.distributed import cleanup_dist_env_and_memory

    lives = []
    for variables in spec["lives"]:
        _forget_rules()
        os.environ.update(variables)
        engine = started(spec)
        lives.append({**generated(engine, spec), **seen(engine)})
        engine.llm_engine.engine_core.shutdown()
        del engine
        cleanup_dist_env_and_memory()
    printed({"tokens": [life["tokens"] for life in lives], "lives": lives})


def collected(spec: dict[str, Any]) -> None:
    """The pass goes, with all that it has made, while the engine serves."""
    engine = started(spec)
    row = seen(engine)
    before = generated(engine, spec)
    gc.unfreeze()  # what vLLM keeps from being collected
    there = len(_passes())
    _let_go()
    gc.collect()
    left = sorted(type(one).__name__ for one in _passes())
    printed({**generated(engine, spec), **row, "before": before, "there": there, "left": left})


def _passes() -> list[Any]:
    from fusiondsl.engine.compiled import CompiledRules
    from fusiondsl.engine.graph_pass import FusionPass
    from fusiondsl.integrations.vllm import VllmFusionPass

    return _of(VllmFusionPass, FusionPass, CompiledRules)


def _of(*kinds: type) -> list[Any]:
    """All objects of these classes; `isinstance` would ask what a dead proxy stands for."""
    return [one for one in gc.get_objects() if issubclass(type(one), kinds)]


def _let_go() -> None:
    """Empties what holds passes: configurations and pass managers."""
    from vllm.compilation.passes.pass_manager import PostGradPassManager
    from vllm.config import CompilationConfig

    for config in _of(CompilationConfig):
        config.inductor_compile_config.clear()
    for manager in _of(PostGradPassManager):
        manager.passes.clear()


def restarted(spec: dict[str, Any]) -> None:
    """Two workers with one configuration; the first is killed. None knows of rules but by it."""
    from vllm.engine.arg_utils import EngineArgs

    config = EngineArgs(**arguments(spec)).create_engine_config()
    _forget_rules()
    context = multiprocessing.get_context("spawn")
    lives = []
    for _ in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, config, spec))
        process.start()
        theirs.close()
        lives.append(ours.recv())
        process.kill()
        process.join()
    printed({"tokens": [life["tokens"] for life in lives], "lives": lives})


def _serve(pipe: Connection, config: Any, spec: dict[str, Any]) -> None:
    from vllm.engine.arg_utils import EngineArgs

    from fusiondsl.integrations.vllm.hooks import pass_of

    EngineArgs.create_engine_config = lambda *_args, **_kwargs: config
    ready = pass_of(config)
    assert ready is not None
    engine = started(spec)
    pipe.send({**generated(engine, spec), **seen(engine), "uuid": ready.uuid()})
    pipe.recv()  # it is killed


def killed(spec: dict[str, Any]) -> None:
    """All processes end at once, and none can clear up behind another."""
    printed(generated(started(spec), spec))
    os.killpg(os.getpgrp(), signal.SIGKILL)


def leaves(_spec: dict[str, Any]) -> None:
    """No engine: shared memory that nothing but this process knows of, and a sudden end."""
    memory = SharedMemory(create=True, size=1)
    resource_tracker.unregister(f"/{memory.name}", "shared_memory")
    printed({"tokens": [], "name": memory.name})
    os.kill(os.getpid(), signal.SIGKILL)


def _forget_rules() -> None:
    """What is said of rules in the environment; kernels may run their references all the same."""
    for name in list(os.environ):
        if name.startswith("FUSIONDSL_") and name != "FUSIONDSL_REFERENCE_OPS":
            del os.environ[name]


LIVES = {one.__name__: one for one in (in_turn, collected, restarted, killed, leaves)}

if __name__ == "__main__":
    asked: dict[str, Any] = json.loads(sys.argv[1])
    LIVES[asked["life"]](asked)
