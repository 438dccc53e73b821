"""A start of vLLM's engine that says where its CPU time went, as a process of `vllm_startup`."""

from __future__ import annotations

import importlib
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from tests.vllm.cpu_engine import run

IMPORT, LOAD, TARGET, APPLY = "import", "load", "target", "apply"
UPDATE = "update"
COMPILE, COMPILERS = "compile", "compilers"

_FUSIONS = {
    "vllm.compilation.passes.fusion.rms_quant_fusion": "RMSNormQuantFusionPass",
    "vllm.compilation.passes.fusion.act_quant_fusion": "ActivationQuantFusionPass",
}


class Clock:
    """CPU seconds of this process by what was done; nothing inside is counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        self._turn()
        self._open.append(what)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def watch(self, owner: Any, name: str, what: str) -> None:
        """Counts all calls of the function that is `name` in `owner`."""
        function: Callable[..., Any] = getattr(owner, name)

        @wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with self(what):
                return function(*args, **kwargs)

        setattr(owner, name, counted)


clock = Clock()


def watch_rules() -> None:
    """What an engine imports in any case is there before."""
    for module in ("vllm.v1.worker.worker_base", "vllm.compilation.backends"):
        importlib.import_module(module)
    with clock(IMPORT):
        from fusiondsl.integrations.vllm import plugin

        hooks = plugin.hooks()
    from fusiondsl.integrations.vllm import passes

    clock.watch(hooks, "build_pass", LOAD)
    for step in ("_configure", "_started", "_answer", "_finish"):
        clock.watch(hooks, step, TARGET)
    clock.watch(passes.VllmFusionPass, "uuid", TARGET)
    clock.watch(passes.VllmFusionPass, "__call__", APPLY)


def watch_fusions() -> None:
    """What vLLM has for the same sites is imported and built when the manager is configured."""

    def watched(configure: Callable[..., None]) -> Callable[..., None]:
        def configured(manager: Any, config: Any) -> None:
            with clock(IMPORT):
                found = [getattr(importlib.import_module(m), n) for m, n in _FUSIONS.items()]
            for fusion in found:
                clock.watch(fusion, "__init__", LOAD)
                clock.watch(fusion, "uuid", TARGET)
                clock.watch(fusion, "__call__", APPLY)
            configure(manager, config)

        return configured

    owner = importlib.import_module("tests.vllm.cpu_engine.managers").ManagerWithFusions
    owner.configure = watched(owner.configure)


def watch_compiler() -> None:
    from torch._inductor.fx_utils import FakeTensorUpdater
    from vllm.compilation import decorators

    clock.watch(FakeTensorUpdater, "incremental_update", UPDATE)
    theirs: Callable[..., Any] = decorators.monitor_torch_compile

    @contextmanager
    def both(*args: Any, **kwargs: Any) -> Iterator[None]:
        own, others = time.process_time(), _children()
        with theirs(*args, **kwargs):
            yield
        clock.seconds[COMPILE] += time.process_time() - own
        clock.seconds[COMPILERS] += _children() - others

    decorators.monitor_torch_compile = both


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


WATCHES: dict[str, Callable[[], None]] = {
    "rules": watch_rules,
    "fusions": watch_fusions,
    "none": lambda: None,
}

if __name__ == "__main__":
    import json
    import sys

    import vllm  # noqa: F401

    watch_compiler()
    WATCHES[json.loads(sys.argv[1])["watch"]]()
    run.main(lambda: {"spent": dict(clock.seconds)})
