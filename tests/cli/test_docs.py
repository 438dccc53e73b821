"""`docs`: a page for every rule and op, all of them or none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fusiondsl
from fusiondsl.cli import markdown
from fusiondsl.cli.pages import MARK
from tests.cli.conftest import Run

RULE = f"""\
{MARK}

# `scale_add`

One kernel for a scaled sum.

- matches primitives only
- writes [`cli_demo.scale_add`](../ops/cli_demo.scale_add.md)
- order: 0
- token range: `tokens * H * itemsize(D) <= 65536`
- proof: exact
- declared in `pack.fuse:8`

```fuse
rule scale_add(x: D[tokens.., H], y: D[tokens.., H]) {{
  doc "One kernel for a scaled sum."
  match {{ z = x * 2.0 + y }}
  replace {{ z = cli_demo.scale_add(x, y) }}
  where {{
    dtypes: D in (bf16, f16)
    limit: tokens * H * itemsize(D) <= 64 KiB
  }}
  example {{ tokens = 7, H = 64, D = bf16, env.arch = "gfx950" }} fires
  example {{ tokens = 4096, H = 64, D = bf16, env.arch = "gfx950" }} refused because limit
}}
```

## Conditions

| label | condition | comes from |
| --- | --- | --- |
| `dtypes` | `D in (bf16, f16)` | this rule, `pack.fuse:13` |
| `limit` | `tokens * H * itemsize(D) <= 65536` | this rule, `pack.fuse:14` |

## Availability

| label | condition | comes from |
| --- | --- | --- |
| `arch` | `env.arch in ("gfx942", "gfx950")` | \
[`cli_demo.scale_add`](../ops/cli_demo.scale_add.md), `pack.fuse:4` |

## Examples

| with | the rule |
| --- | --- |
| `tokens = 7`, `H = 64`, `D = bf16`, `env.arch = "gfx950"` | fires |
| `tokens = 4096`, `H = 64`, `D = bf16`, `env.arch = "gfx950"` | is refused because of `limit` |
"""


def test_pages(run: Run, place: Path) -> None:
    done = run("docs", "pack.fuse", "-o", "pages")
    assert (done.code, done.out, done.err) == (0, "wrote 3 pages to pages\n", "")
    assert (place / "pages/rules/scale_add.md").read_text() == RULE
    op = (place / "pages/ops/cli_demo.scale_add.md").read_text()
    assert "\n- kind: target\n- torch op: `fusiondsl::cli_demo_scale_add`\n" in op
    assert "\n- kernel: `cli_demo.kernels:scale_add`\n" in op
    assert "\n## Rules that write it\n\n- [`scale_add`](../rules/scale_add.md)\n" in op
    index = (place / "pages/index.md").read_text()
    row = (
        "| [`cli_demo.scale_add`](ops/cli_demo.scale_add.md) | [`scale_add`](rules/scale_add.md) |"
    )
    assert index.index("## By target") < index.index(row) < index.index("## Ops")


def test_a_second_run_replaces_the_first(run: Run, place: Path) -> None:
    run("docs", "fusiondsl:ops", "-o", "pages")
    assert (place / "pages/ops/rms_norm.md").exists()
    assert run("docs", "pack.fuse", "-o", "pages").code == 0
    assert sorted(file.name for file in place.rglob("*.md")) == [
        "cli_demo.scale_add.md",
        "index.md",
        "scale_add.md",
    ]
    assert not [file.name for file in place.iterdir() if file.name.startswith(".")]


@pytest.mark.parametrize(
    ("name", "text"), [("notes.md", "mine"), ("ops/x.md", "mine"), ("empty", "")]
)
def test_files_of_others_are_kept(run: Run, place: Path, name: str, text: str) -> None:
    file = place / "pages" / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = run("docs", "pack.fuse", "-o", "pages")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error[FD646]: `{place / 'pages'}` holds `{name}`, which is no page\n\n1 error\n"
    )
    assert [path for path in (place / "pages").rglob("*") if path.is_file()] == [file]


def test_places_that_cannot_be_written(run: Run, place: Path) -> None:
    done = run("docs", "pack.fuse", "-o", "nowhere/pages")
    assert done.code == 2
    assert done.err.startswith("error[FD644]: cannot write `")
    done = run("docs", "pack.fuse", "-o", "pack.fuse")
    assert done.code == 2
    assert done.err == f"error[FD646]: `{place / 'pack.fuse'}` is not a directory\n\n1 error\n"


def test_what_fails_leaves_the_pages_of_before(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("docs", "pack.fuse", "-o", "pages")
    before = {file: file.read_text() for file in place.rglob("*.md")}
    rename = Path.rename

    def full(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", full)
    done = run("docs", "fusiondsl:ops", "-o", "pages")
    assert done.code == 2
    assert "No space left on device" in done.err
    assert {file: file.read_text() for file in place.rglob("*.md")} == before


def test_rules_that_do_not_compile_write_nothing(run: Run, place: Path) -> None:
    (place / "bad.fuse").write_text("rule x(\n")
    assert run("docs", "bad.fuse", "-o", "pages").code == 3
    assert not (place / "pages").exists()


def test_shipped_pages_are_the_same_everywhere_and_their_links_lead_somewhere(
    tmp_path: Path,
) -> None:
    texts = []
    for seed in ("1", "2"):
        place = tmp_path / seed
        place.mkdir()
        subprocess.run(
            [sys.executable, "-m", "fusiondsl", "docs", "fusiondsl:", "-o", "pages"],
            cwd=place,
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": str(Path(fusiondsl.__file__).parents[1]),
            },
            check=True,
            capture_output=True,
        )
        pages = sorted((place / "pages").rglob("*.md"))
        texts.append({str(page.relative_to(place)): page.read_text() for page in pages})
    assert texts[0] == texts[1]
    assert len(texts[0]) > 50
    assert str(Path(fusiondsl.__file__).parents[1]) not in "".join(texts[0].values())
    for page in pages:
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page}: {target}"


def test_markdown_in_texts_stays_text() -> None:
    assert markdown.prose("a*b* <i> [x](y)\nfor `a|b*`") == r"a\*b\* \<i\> \[x\](y) for `a|b*`"
    assert markdown.code("a`b") == "``a`b``"
    assert markdown.code("`") == "`` ` ``"
    assert markdown.block(["x = ```"], "fuse") == "````fuse\nx = ```\n````"
    assert markdown.table(("a",), [("`x|y`",)]) == "| a |\n| --- |\n| `x\\|y` |"
