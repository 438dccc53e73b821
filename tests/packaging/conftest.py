"""The built wheel, installed without its dependencies into a directory of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Installed:
    """An installation to run commands against; torch and the rest come from the test's own."""

    root: Path
    wheel: Path

    @property
    def environment(self) -> Mapping[str, str]:
        path = os.pathsep.join([str(self.root / "bin"), str(Path(sys.executable).parent)])
        return {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "PATH": path + os.pathsep + os.environ.get("PATH", ""),
            "NO_COLOR": "1",
        }

    def run(self, command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a shell command in `cwd`, output and errors together."""
        return subprocess.run(
            command,
            shell=True,
            cwd=cwd,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    dist, root = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("installed")
    _python("-m", "hatchling", "build", "-t", "wheel", "-d", str(dist))
    (wheel,) = dist.glob("*.whl")
    _python("-m", "pip", "install", "-q", "--no-deps", "--target", str(root), str(wheel))
    return Installed(root, wheel)


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=CHECKOUT, check=True, capture_output=True)
