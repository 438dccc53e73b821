"""`FUSIONDSL_*` variables: what they mean, and where they are wrong. Needs no vLLM."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fusiondsl import FusionError
from fusiondsl.diagnostics.render import render_all
from fusiondsl.integrations.vllm.settings import (
    Settings,
    check_rule_names,
    settings_of,
    split_paths,
)


def test_nothing_given() -> None:
    assert settings_of({}) == Settings()


def test_everything_given() -> None:
    given = {
        "FUSIONDSL_RULES": "fusiondsl:rocm_aiter:own.fuse",
        "FUSIONDSL_FACTS": "env.arch=gfx950, env.aiter=true,env.tp_size=8",
        "FUSIONDSL_OFF": "*_mxfp4*,",
        "FUSIONDSL_REQUIRE": "a, b",
        "FUSIONDSL_STRICT": "1",
        "FUSIONDSL_DRY_RUN": "no",
        "FUSIONDSL_PLACE": "before",
    }
    assert settings_of(given) == Settings(
        rules=("fusiondsl:rocm_aiter", "own.fuse"),
        facts={"env.arch": "gfx950", "env.aiter": True, "env.tp_size": 8},
        off=("*_mxfp4*",),
        require=("a", "b"),
        strict=True,
        place="before",
    )


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", ()),
        ("a.fuse", ("a.fuse",)),
        ("a.fuse:b", ("a.fuse", "b")),
        ("fusiondsl:rocm_aiter", ("fusiondsl:rocm_aiter",)),
        ("x/fusiondsl:rocm_aiter", ("x/fusiondsl", "rocm_aiter")),
        ("a:fusiondsl:ops/norms.fuse:b", ("a", "fusiondsl:ops/norms.fuse", "b")),
        ("fusiondsl:", ("fusiondsl:",)),
    ],
)
def test_paths(text: str, paths: tuple[str, ...]) -> None:
    assert split_paths(text) == paths


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (
            "FUSIONDSL_FACTS",
            "env.aiter=true,env.arhc=gfx950",
            """\
error[FD720]: unknown fact `env.arhc`; did you mean `env.arch`?
 --> FUSIONDSL_FACTS:1:16
  |
1 | env.aiter=true,env.arhc=gfx950
  |                ^^^^^^^^^^^^^^^
""",
        ),
        (
            "FUSIONDSL_FACTS",
            "gfx950",
            """\
error[FD720]: `gfx950` is not NAME=VALUE
 --> FUSIONDSL_FACTS:1:1
  |
1 | gfx950
  | ^^^^^^
""",
        ),
        (
            "FUSIONDSL_STRICT",
            "maybe",
            """\
error[FD720]: `maybe` is neither 1 nor 0
 --> FUSIONDSL_STRICT:1:1
  |
1 | maybe
  | ^^^^^
""",
        ),
        (
            "FUSIONDSL_PLACE",
            "first",
            """\
error[FD720]: `first` is neither `after` nor `before`
 --> FUSIONDSL_PLACE:1:1
  |
1 | first
  | ^^^^^
  |
  = help: the place is that among vLLM's own fusion passes
""",
        ),
    ],
)
def test_what_cannot_be_read_is_shown(variable: str, value: str, expected: str) -> None:
    with pytest.raises(FusionError) as caught:
        settings_of({variable: value})
    assert caught.value.exit_code == 2
    assert render_all(caught.value.diagnostics) == f"{expected}\n1 error\n"


def test_every_wrong_variable_is_named_at_once() -> None:
    with pytest.raises(FusionError) as caught:
        settings_of({"FUSIONDSL_STRICT": "x", "FUSIONDSL_PLACE": "y"})
    assert len(caught.value.diagnostics) == 2


def test_rules_that_settings_name_are_there() -> None:
    check_rule_names(Settings(off=("norm*",), require=("silu",)), ["norm_quant", "silu"])
    with pytest.raises(FusionError, match="`off`: no rule is called `norn`; did you mean `norm`"):
        check_rule_names(Settings(off=("norn",)), ["norm"])


def test_a_place_that_is_none() -> None:
    with pytest.raises(ValueError, match="neither `after` nor `before`"):
        Settings(place="between")


def test_without_rules_the_plugin_costs_nothing() -> None:
    """It is called in every process of vLLM."""
    code = (
        "import sys; from fusiondsl.integrations.vllm.plugin import register; register();"
        " sys.exit('torch' in sys.modules or 'lark' in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "FUSIONDSL_RULES"}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )
