"""docs/torch_compile.md: its programs print what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config

from fusiondsl.engine import graph_pass, settings
from fusiondsl.ops.dispatch import SWITCH

PAGE = Path(__file__).resolve().parents[2] / "docs" / "torch_compile.md"
_BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    names: dict[str, Any] = {}
    printed = ""
    with config.patch(force_disable_caches=True):
        for language, title, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            if title:
                Path(title).write_text(text)
            elif language == "python":
                assert printed == "", "the page does not show what was printed"
                said = io.StringIO()
                with contextlib.redirect_stdout(said):
                    exec(text, names)
                printed = said.getvalue()
            else:
                assert (language, printed) == ("text", text)
                printed = ""
    assert printed == ""
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
    }
