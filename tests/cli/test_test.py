"""`test`: rules on their own source and on their examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import PACK, Run


def test_all_pass(run: Run) -> None:
    done = run("test", "pack.fuse")
    assert (done.code, done.err) == (0, "")
    assert done.out == "1 rules: 3 passed, 0 failed, 0 skipped\n"


def test_what_passed_on_request(run: Run) -> None:
    assert run("test", "pack.fuse", "--all", "--rule", "scale_add").out == (
        "scale_add\n"
        "  ok      matches its own source\n"
        "  ok      fires (pack.fuse:16:3)\n"
        "  ok      refused because limit (pack.fuse:17:3)\n"
        "1 rules: 3 passed, 0 failed, 0 skipped\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "title", "message"),
    [
        (
            "tokens = 7, H = 64",
            "tokens = 4096, H = 64",
            "fires (pack.fuse:16:3)",
            "predicate false [limit]: tokens * H * itemsize(D) is 524288, over the limit 65536",
        ),
        (
            'env.arch = "gfx950" } fires',
            'env.arch = "gfx90a" } fires',
            "fires (pack.fuse:16:3)",
            (
                "cli_demo.scale_add is not available: "
                'env.arch is "gfx90a", not in ("gfx942", "gfx950")'
            ),
        ),
        ("tokens = 4096", "tokens = 8", "refused because limit (pack.fuse:17:3)", "it fires"),
        (
            "refused because limit",
            "refused because dtypes",
            "refused because dtypes (pack.fuse:17:3)",
            (
                "dtypes holds; instead: predicate false [limit]: "
                "tokens * H * itemsize(D) is 524288, over the limit 65536"
            ),
        ),
        ("tokens = 4096", "tokens = 4", "refused (pack.fuse:17:3)", "it fires"),
    ],
)
def test_failures(run: Run, place: Path, old: str, new: str, title: str, message: str) -> None:
    text = PACK.replace(old, new)
    if title.startswith("refused ("):
        text = text.replace(" because limit", "")
    (place / "pack.fuse").write_text(text)
    done = run("test", "pack.fuse")
    assert done.code == 1
    assert f"  FAILED  {title}\n          {message}\n" in done.out
    assert "1 failed" in done.out


def test_a_rule_that_cannot_be_tried_here(run: Run, place: Path) -> None:
    (place / "pack.fuse").write_text(PACK.partition("  example")[0] + "}\n")
    done = run("test", "pack.fuse")
    assert done.code == 0
    assert done.out == (
        "scale_add\n"
        "  skipped matches its own source\n"
        "          cli_demo.scale_add is not available: env.arch is not known\n"
        "1 rules: 0 passed, 0 failed, 1 skipped\n"
    )
    assert run("test", "pack.fuse", "--target", "gfx942").out == (
        "1 rules: 1 passed, 0 failed, 0 skipped\n"
    )


def test_an_artifact_can_be_tested(run: Run) -> None:
    run("compile", "pack.fuse", "--target", "gfx942", "-o", "pack.fused")
    done = run("test", "pack.fused")
    assert (done.code, done.out) == (0, "1 rules: 3 passed, 0 failed, 0 skipped\n")


def test_an_unknown_rule(run: Run) -> None:
    done = run("test", "pack.fuse", "--rule", "scale_ad")
    assert (done.code, done.out) == (2, "")
    assert done.err == ("fusiondsl: no rule is called `scale_ad`; did you mean `scale_add`?\n")


def test_json(run: Run) -> None:
    document = json.loads(run("test", "pack.fuse", "--format", "json").out)
    assert document["counts"] == {"passed": 3}
    assert document["outcomes"][1] == {
        "rule": "scale_add",
        "title": "fires",
        "passed": True,
        "message": "",
        "at": "pack.fuse:16:3",
    }


def test_the_shipped_patterns(run: Run) -> None:
    done = run("test", "fusiondsl:rocm_aiter")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith(" passed, 0 failed, 0 skipped\n")
    assert done.out.startswith("30 rules: ")
