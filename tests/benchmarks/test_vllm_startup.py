"""The benchmark of engine starts: what it starts, and what it makes of what they took."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import vllm_startup
from benchmarks.startup_engine import APPLY, COMPILE, COMPILERS, IMPORT, LOAD, TARGET, UPDATE
from benchmarks.vllm_startup import AGAIN, ARTIFACT, KINDS, NOBODY, OWN, STEPS, TEXT
from fusiondsl import artifact
from fusiondsl.stored import SWITCH
from tests.vllm.cpu_engine.start import Engines, Outcome

SECONDS = {
    NOBODY: (0.0, 0.0),
    ARTIFACT: (0.1, 0.02),
    AGAIN: (0.1, 0.05),
    TEXT: (0.1, 2.0),
    OWN: (0.0, 1.0),
}
"""What importing and loading take in a start of each kind."""

COMPILING = 10.0
"""With compilers; a fiftieth of it is 200 ms."""


class Stand:
    """Stands for engines: what starts take is known."""

    def __init__(self, slower: float = 0.0) -> None:
        self.slower = slower
        self.started: list[str] = []
        self.checked = 0

    def start(self, engines: Engines, model: str, **options: Any) -> Outcome:
        kind = _kind(options["variables"], options["watch"])
        self.started.append(kind)
        imported, loaded = SECONDS[kind]
        # The last of several starts is not the one in the middle.
        more = self.slower + 0.01 * self.started.count(kind)
        spent = {IMPORT: imported, LOAD: loaded + more, TARGET: 0.01, APPLY: 0.01, UPDATE: 0.2}
        spent |= {COMPILE: COMPILING - 4, COMPILERS: 4.0}
        matched = {} if kind == NOBODY else {"rule": 8, "other": 4}
        counter = {"num_backend_compilations": 5}
        return Outcome(0, {"spent": spent, "matched": matched, "counter": counter}, "")

    def check_once(self, engines: Engines) -> None:
        self.checked += 1


def _kind(variables: Mapping[str, str], watch: str) -> str:
    if watch != "rules":
        return {"none": NOBODY, "fusions": OWN}[watch]
    if artifact.is_artifact(variables["FUSIONDSL_RULES"]):
        assert Path(variables["FUSIONDSL_RULES"]).is_file()
        return ARTIFACT
    return TEXT if variables.get(SWITCH) == "0" else AGAIN


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    made = Stand()
    monkeypatch.setattr(Engines, "start", lambda *args, **options: made.start(*args, **options))
    monkeypatch.setattr(vllm_startup, "_check_once", made.check_once)
    return made


def test_the_kinds_are_started_in_turn(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    assert vllm_startup.main(["--repetitions", "3", "--check"]) == 0
    assert stand.started == [*KINDS] * 3
    assert stand.checked == 1
    out = capsys.readouterr().out
    # 100 + 20 + 20 (the second of three starts) + 10 + 10
    assert "| together | 160.0 [150.0..170.0] | 190.0 [180.0..200.0] | 2140.0 " in out
    assert "| of compiling, 10.0 s | 1.60% | 1.90% | 21.40% | 10.40% |" in out
    assert "| of compiling without g++, 6.0 s | 2.67% |" in out
    assert "| sites, in graphs | 12 in 5 | 12 in 5 | 12 in 5 | 12 in 5 |" in out
    assert all(text in out for text in STEPS.values())


def test_above_the_target(stand: Stand) -> None:
    stand.slower = 0.02
    assert vllm_startup.main(["--repetitions", "1"]) == 0
    assert vllm_startup.main(["--repetitions", "1", "--check"]) == 1


def test_some_of_the_kinds(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--repetitions", "2", "--only", TEXT, "--only", ARTIFACT]
    assert vllm_startup.main(words) == 0
    assert stand.started == [ARTIFACT, TEXT] * 2
    assert not stand.checked
    assert "of compiling" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        vllm_startup.main([*words, "--check"])
    assert "--check compares neither, " in capsys.readouterr().err
