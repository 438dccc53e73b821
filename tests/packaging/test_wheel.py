"""The wheel carries what the package needs and works outside the checkout."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

from tests.packaging.conftest import CHECKOUT, Installed


def test_carries_grammar_and_every_pattern(installed: Installed) -> None:
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    patterns = {
        f"fusiondsl/_data/patterns/{path.relative_to(CHECKOUT / 'patterns').as_posix()}"
        for path in (CHECKOUT / "patterns").rglob("*")
        if path.suffix in (".fuse", ".yaml", ".json")
    }
    assert patterns
    assert patterns <= names
    assert {"fusiondsl/_data/grammar/fusion.lark", "fusiondsl/py.typed"} <= names


def test_carries_what_pages_are_made_of(installed: Installed) -> None:
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    pictures = CHECKOUT / "fusiondsl" / "pictures"
    parts = {
        path.relative_to(CHECKOUT).as_posix()
        for folder in ("web", "vendor")
        for path in (pictures / folder).iterdir()
    }
    assert len(parts) == 9
    assert parts <= names
    assert any(n.endswith("licenses/fusiondsl/pictures/vendor/dagre.LICENSE.txt") for n in names)


def test_starts_with_the_tables_it_carries(installed: Installed, tmp_path: Path) -> None:
    program = "import fusiondsl.syntax.fuse as fuse; print(fuse._tools().parser.source_path)"
    read = f'python -c "{program}"'
    assert installed.run(read, tmp_path).stdout == "<deserialized>\n"


def test_carries_no_tests_and_no_caches(installed: Installed) -> None:
    names = zipfile.ZipFile(installed.wheel).namelist()
    assert not [n for n in names if n.startswith("tests/") or "__pycache__" in n]
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_sdist_builds_the_same_wheel(installed: Installed, tmp_path: Path) -> None:
    build = "python -m hatchling build -t"
    made = installed.run(f"cd {CHECKOUT} && {build} sdist -d {tmp_path}", tmp_path)
    assert made.returncode == 0, made.stdout
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        sdist.extractall(tmp_path, filter="data")
    root = tmp_path / archive.name.removesuffix(".tar.gz")
    assert (root / "tests").is_dir()
    made = installed.run(f"{build} wheel -d {tmp_path}", root)
    assert made.returncode == 0, made.stdout
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.read_bytes() == installed.wheel.read_bytes()


def test_requires_three_distributions(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        lines = wheel.read(name).decode().splitlines()
    required = [line for line in lines if line.startswith("Requires-Dist") and "extra" not in line]
    assert required == [
        "Requires-Dist: lark>=1.2.2",
        "Requires-Dist: pyyaml>=6.0",
        "Requires-Dist: torch>=2.9",
    ]


def test_import_and_check_need_no_torch(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')\n")
    (tmp_path / "norms.fuse").write_text('import "fusiondsl:rocm_aiter/mxfp4.fuse"\n')
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fusiondsl; "
    program += "print(fusiondsl.__file__)"
    result = installed.run(f'python -c "{program}"', tmp_path)
    assert result.stdout.strip().startswith(str(installed.root)), result.stdout
    checked = installed.run(
        "python -c \"import sys; sys.path.insert(0, '.'); "
        "from fusiondsl.cli.main import main; sys.exit(main(['check', 'norms.fuse']))\"",
        tmp_path,
    )
    assert checked.returncode == 0, checked.stdout


def test_command_is_installed(installed: Installed, tmp_path: Path) -> None:
    result = installed.run("fusiondsl --help", tmp_path)
    assert result.returncode == 0, result.stdout
    assert "check" in result.stdout
