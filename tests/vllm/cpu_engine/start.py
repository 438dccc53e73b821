"""Starts engines, each in a process of its own and one at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PYTHON = os.environ.get("FUSIONDSL_VLLM_PYTHON") or (sys.executable if find_spec("vllm") else None)
EVERY = os.environ.get("FUSIONDSL_ENGINES") == "all"
"""Every engine that is known is to be started, which takes an hour."""
TIMEOUT = 900
SHARED_MEMORY = Path("/dev/shm")
SEGMENTS = ("vllm_dist_*", "psm_*", "sem.mp-*")
"""Of the ranks of a group, and of Python between processes."""

_NO_GRAPH_IS_KEPT = {
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
}
"""Else equal pieces of one model are compiled, and counted, once. About what g++ makes of a kernel
only the text of the kernel decides: all starts share that."""

_ENTRY_POINTS = """\
[vllm.platform_plugins]
cpu_engine = tests.vllm.cpu_engine.plugins:platform

[vllm.general_plugins]
cpu_engine = tests.vllm.cpu_engine.plugins:general
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    result: dict[str, Any]
    log: str
    left: tuple[str, ...] = ()
    """Shared memory that nobody held at the end; it is gone."""

    def __getitem__(self, name: str) -> Any:
        assert self.code == 0, self.log[-6000:]
        return self.result[name]


@dataclass
class Engines:
    """All engines of a test run: they share models, and caches where a test names one."""

    root: Path

    def start(
        self,
        model: str,
        *,
        variables: dict[str, str] | None = None,
        config: dict[str, Any] | None = None,
        compilation: dict[str, Any] | None = None,
        dtype: str = "bfloat16",
        tp: int = 1,
        cache: str | None = None,
        max_tokens: int = 256,
        prompts: list[list[int]] | None = None,
        tokens: int = 8,
        installed: bool = True,
        engine: dict[str, Any] | None = None,
        life: str | None = None,
        module: str | None = None,
        **more: Any,
    ) -> Outcome:
        """`variables` are of the environment; `cache` names a cache, without which nothing is kept.

        `installed`: vLLM finds the entry point of fusiondsl. `life` is one of `lives`; `module` is
        run instead of `run` or `lives`, and `more` is for it.
        """
        directory = self.model(model)
        spec = {
            "model": str(directory),
            "load_format": _load_format(model),
            "dtype": dtype,
            "tp": tp,
            "compilation": compilation or {"use_inductor_graph_partition": True},
            "config": config,
            "max_tokens": max_tokens,
            "prompts": prompts,
            "tokens": tokens,
            "engine": engine or {},
            "life": life,
            **more,
        }
        usual = f"{__package__}.{'run' if life is None else 'lives'}"
        return self.run(
            module or usual, spec, self.variables(variables or {}, tp, cache, installed)
        )

    def model(self, name: str) -> Path:
        """Made where vLLM is, which has what writes weights."""
        directory = self.root / "models" / name
        if not (directory / "config.json").exists():
            code = (
                "import sys, pathlib; from tests.vllm.cpu_engine.models import make;"
                " make(sys.argv[1], pathlib.Path(sys.argv[2]))"
            )
            command = [str(PYTHON), "-c", code, name, str(self.root / "models")]
            path = {**os.environ, "PYTHONPATH": str(ROOT)}
            subprocess.run(command, check=True, env=path, cwd=ROOT, timeout=TIMEOUT)
        return directory

    def variables(
        self,
        given: dict[str, str],
        tp: int = 1,
        cache: str | None = None,
        installed: bool = True,
    ) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FUSIONDSL_", "VLLM_"))}
        found = {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(self._installation(installed))]),
            "CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "FUSIONDSL_CACHE_DIR": str(self.root / "checked"),
            "VLLM_CACHE_ROOT": str(self.root / f"cache_{cache or 'none'}"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.root / f"inductor_{cache or 'none'}"),
            **({} if cache else _NO_GRAPH_IS_KEPT),
            **given,
        }
        if tp > 1:
            found["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(map(str, range(tp)))
        return found

    def _installation(self, installed: bool) -> Path:
        """Metadata of installed distributions: what tells vLLM of entry points."""
        directory = self.root / ("installed" if installed else "not_installed")
        distributions = {"cpu_engine": _ENTRY_POINTS}
        if installed:
            distributions["fusiondsl"] = _own_entry_points()
        for name, entry_points in distributions.items():
            metadata = directory / f"{name}-0.0.dist-info"
            metadata.mkdir(parents=True, exist_ok=True)
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0\n"
            (metadata / "METADATA").write_text(text)
            (metadata / "entry_points.txt").write_text(entry_points)
        return directory

    def run(self, module: str, spec: dict[str, Any], variables: dict[str, str]) -> Outcome:
        """A process that runs `module` with `spec`, and prints a result as `run` does."""
        before = segments()
        process = subprocess.Popen(
            [str(PYTHON), "-m", module, json.dumps(spec)],
            cwd=self.root,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            log, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            log, _ = process.communicate()
            log += f"\nno end after {TIMEOUT} seconds"
        finally:
            left = segments() - before
            for segment in left:
                segment.unlink(missing_ok=True)
        rows = [line for line in log.splitlines() if line.startswith('{"tokens"')]
        result = json.loads(rows[-1]) if rows else {}
        code = process.returncode if rows or process.returncode else 1
        return Outcome(code, result, log, tuple(sorted(segment.name for segment in left)))


def segments() -> set[Path]:
    """Shared memory that this user has and no process holds: what engines leave behind."""
    if not SHARED_MEMORY.is_dir():
        return set()
    there = {path: _inode(path) for pattern in SEGMENTS for path in SHARED_MEMORY.glob(pattern)}
    held = _held()  # asked last: what is made meanwhile is not in the list
    return {path for path, inode in there.items() if inode is not None and inode not in held}


def _inode(path: Path) -> int | None:
    """None for what is another user's, or gone."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_ino if status.st_uid == os.getuid() else None


def _held() -> set[int]:
    """What processes have mapped there: a semaphore has another name for who has made it."""
    found: set[int] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text(errors="replace").splitlines()
        except OSError:  # it has ended, or is another user's
            continue
        found.update(int(line.split()[4]) for line in lines if f" {SHARED_MEMORY}/" in line)
    return found


def _own_entry_points() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines: list[str] = []
    for group, entries in project["entry-points"].items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {value}" for name, value in entries.items()]
    return "\n".join(lines) + "\n"


def _load_format(model: str) -> str:
    return "auto" if model.startswith("llama") else "dummy"


def worker(root: Path, module: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """A module of the tests in a process that has vLLM, without an engine."""
    return subprocess.Popen(
        [str(PYTHON), "-m", module, *arguments],
        cwd=ROOT,
        env=Engines(root).variables(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The JSON in its last line."""
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err[-4000:]
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found
