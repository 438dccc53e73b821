"""docs/torch_compile.md: its programs print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch._inductor import config

from fusiondsl import stored
from fusiondsl.engine import graph_pass, settings
from fusiondsl.ops.dispatch import SWITCH
from tests.docs.pages import DOCS, run_programs

PAGE = DOCS / "torch_compile.md"


@pytest.mark.slow
def test_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    with config.patch(fx_graph_cache=False):
        assert run_programs(PAGE) == 8
    assert config.post_grad_custom_post_pass is None


def test_every_variable_is_in_the_table() -> None:
    told = set(re.findall(r"^\| `(FUSIONDSL_\w+)=", PAGE.read_text(), re.MULTILINE))
    assert told == {
        graph_pass.REPORT,
        graph_pass.WHY,
        settings.DRY_RUN,
        settings.OFF,
        settings.REQUIRE,
        SWITCH,
        stored.DIRECTORY,
        stored.SWITCH,
    }
