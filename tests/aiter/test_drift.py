"""What declarations call in AITER, against trees that have drifted and trees that are hostile."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

import fusiondsl
from fusiondsl.aiter.drift import Finding, Status, check_aiter, known_signatures
from fusiondsl.aiter.functions import signature
from fusiondsl.aiter.tree import NoTree, installed_tree, is_installed, tree_at
from fusiondsl.rules import load_source
from tests.aiter.trees import fitting, write
from tests.ops.test_aiter_calls import MODULES

SHIPPED = fusiondsl.load("fusiondsl:ops").program
MXFP4 = "ops/triton/quant/fused_mxfp4_quant.py"
PAD = "ops/triton/normalization/fused_add_rmsnorm_pad.py"


def findings(root: Path) -> dict[str, Finding]:
    return {f.op.name: f for f in check_aiter(SHIPPED.ops.values(), tree_at(root))}


def one(root: Path, files: dict[str, str], call: str) -> Finding:
    """What is found about an op of our own that calls `call`."""
    op = "op ours.f(x: D[t..], eps: float) -> (y: D[t..]) {\n  means { y = x }\n"
    program = load_source(f"{op}  impl {call}\n}}\n").program
    (finding,) = check_aiter(program.ops.values(), tree_at(write(root, files)))
    return finding


# --- shipped declarations ------------------------------------------------------------------------


def test_each_call_is_known() -> None:
    called = {
        impl.location
        for op in SHIPPED.ops.values()
        for impl in op.impls
        if impl.location.startswith("aiter.")
    }
    assert called == set(known_signatures())


def test_what_is_known_is_what_the_stand_ins_take() -> None:
    for module, functions in MODULES.items():
        for function in functions:
            known = known_signatures()[f"{module}:{function.__name__}"]
            taken = inspect.signature(function).parameters
            assert [p.name for p in known] == list(taken), function.__name__
            for parameter in known:
                required = taken[parameter.name].default is inspect.Parameter.empty
                assert (parameter.default is None) == required, (function.__name__, parameter)


def test_a_tree_that_fits(tmp_path: Path) -> None:
    found = findings(write(tmp_path, fitting()))
    assert len(found) == 17
    assert {finding.status for finding in found.values()} == {Status.FITS}
    function = found["aiter.add_rms_norm_pad"].function
    assert function is not None
    assert function.place == f"{tmp_path / 'aiter' / PAD}:5"


DRIFTS = {
    "renamed": (
        PAD,
        "epsilon: Tensor",
        "eps: Tensor",
        ["parameter 3, `epsilon`, is now called `eps`"],
    ),
    "moved": (
        PAD,
        "weight: Tensor, epsilon: Tensor",
        "epsilon: Tensor, weight: Tensor",
        [
            "parameter 2, `weight`, stands elsewhere, and here is `epsilon`",
            "parameter 3, `epsilon`, stands elsewhere, and here is `weight`",
        ],
    ),
    "keyword renamed": (
        PAD,
        "res: Tensor = None",
        "residual: Tensor = None",
        ["it has no parameter `res`"],
    ),
    "new without a default": (
        PAD,
        ") ->",
        ", *, kernel) ->",
        ["`kernel`, which is taken by name only, has no default and is not passed"],
    ),
    "default changed": (
        MXFP4,
        "shuffle: Tensor = False, scale",
        "shuffle: Tensor = True, scale",
        ["the default of `shuffle`, which is not passed, was False and is True"],
    ),
    "fewer by position": (
        PAD,
        "(x: Tensor, weight: Tensor, epsilon: Tensor, res",
        "(x: Tensor, *, weight=None, epsilon=None, res",
        ["3 arguments are passed by position, and it takes 1"],
    ),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_a_tree_that_has_drifted(tmp_path: Path, name: str) -> None:
    file, old, new, problems = DRIFTS[name]
    files = fitting()
    assert old in files[file]
    files[file] = files[file].replace(old, new)
    found = findings(write(tmp_path, files))
    drifted = {name: f for name, f in found.items() if f.status is not Status.FITS}
    (finding,) = drifted.values()
    assert finding.status is Status.DRIFTED
    assert list(finding.problems) == problems


def test_new_parameters_with_defaults_are_no_drift(tmp_path: Path) -> None:
    files = fitting()
    files[PAD] = files[PAD].replace(") ->", ', kernel_type: str = "tdm", **rest) ->')
    assert {f.status for f in findings(write(tmp_path, files)).values()} == {Status.FITS}


def test_a_function_that_has_moved(tmp_path: Path) -> None:
    files = fitting()
    files["ops/triton/pad.py"] = "import torch\n" + files.pop(PAD)
    finding = findings(write(tmp_path, files))["aiter.add_rms_norm_pad"]
    assert finding.status is Status.MISSING
    place = tmp_path / "aiter/ops/triton/pad.py"
    assert finding.problems == (
        "there is no module `aiter.ops.triton.normalization.fused_add_rmsnorm_pad`",
        f"there is a function of that name at {place}:6",
    )


# --- finding -------------------------------------------------------------------------------------

DEF = "def f(x, eps): ...\n"
UP = "from ..b import f\n"
TRIED = "if 1:\n  try:\n    from .b import f\n  except ImportError:\n    f = None\n"
DEEP = "x = " + "(" * 5000 + ")" * 5000
MOVED = '_BACKWARD_COMPAT_MAP = {"a": "a", "b": 1, **x}\n'


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"a.py": DEF}, "a.py:1"),
        ({"a/__init__.py": DEF}, "a/__init__.py:1"),
        ({"a.py": "from .b import f\n", "b.py": DEF}, "b.py:1"),
        ({"a.py": "from aiter.b import g as f\n", "b.py": "def g(x, eps): ...\n"}, "b.py:1"),
        ({"a/__init__.py": "from .b import *\n", "a/b.py": DEF}, "a/b.py:1"),
        ({"a/c.py": UP, "a/__init__.py": "from .c import f\n", "b.py": DEF}, "b.py:1"),
        ({"a.py": TRIED, "b.py": DEF}, "b.py:1"),
        ({"a.py": "def g(x, eps): ...\nf = g\n"}, "a.py:1"),
        ({"a.py": "async def f(x, eps): ...\n"}, "a.py:1"),
        ({"a.py": "@typing.overload\ndef f(x): ...\n" + DEF}, "a.py:3"),
        ({"__init__.py": '_BACKWARD_COMPAT_MAP = {"a": "new.a"}\n', "new/a.py": DEF}, "new/a.py:1"),
        ({"a.py": "from .c import *\nfrom .d import *\n", "c.py": "", "d.py": DEF}, "d.py:1"),
    ],
)  # fmt: skip
def test_where_a_function_is(tmp_path: Path, files: dict[str, str], place: str) -> None:
    finding = one(tmp_path, files, '"aiter.a:f"(x, eps)')
    assert (finding.status, finding.problems) == (Status.FITS, ())
    assert finding.function is not None
    assert finding.function.place == str(tmp_path / "aiter" / place)


@pytest.mark.parametrize(
    ("files", "status", "problem"),
    [
        ({}, Status.MISSING, "there is no module `aiter.a`"),
        ({"a.py": "x = 1\n"}, Status.MISSING, "{root}/a.py has no function `f`"),
        ({"a.py": "def f(:\n"}, Status.UNREADABLE, "{root}/a.py: line 1: invalid syntax"),
        ({"a.py": "x = '\0'\n"}, Status.UNREADABLE, "null bytes"),
        ({"a.py": DEEP}, Status.UNREADABLE, "too many nested"),
        ({"a.py": "x = " + "-" * 200_000 + "1"}, Status.UNREADABLE, "nested too deeply"),
        ({"a.py": "#" * (5 << 20)}, Status.UNREADABLE, "larger than 4 MiB"),
        ({"a.py": "f = make(1)\n"}, Status.UNREADABLE, "`f` is no plain function at {root}/a.py:1"),
        ({"a.py": "class f: ...\n"}, Status.UNREADABLE, "`f` is no plain function"),
        ({"a.py": "from torch import f\n"}, Status.UNREADABLE, "`f` may come from `torch`"),
        ({"a.py": "from ... import f\n"}, Status.UNREADABLE, "`f` may come from ``"),
        ({"a.py": "from .a import f\n"}, Status.UNREADABLE, "`f` is imported in a circle"),
        ({"a.py": "f = f\n"}, Status.UNREADABLE, "`f` is imported in a circle"),
        ({"a.py": "from .a import *\n"}, Status.UNREADABLE, "`f` is imported in a circle"),
        ({"a.py": "from torch import *\n"}, Status.UNREADABLE, "`f` may come from `torch`"),
        ({"a.py": "from .b import *\n", "b.py": ""}, Status.MISSING, "has no function `f`"),
        ({"__init__.py": MOVED}, Status.MISSING, "no module"),
    ],
)  # fmt: skip
def test_what_is_not_found_or_not_understood(
    tmp_path: Path, files: dict[str, str], status: Status, problem: str
) -> None:
    finding = one(tmp_path, files, '"aiter.a:f"(x, eps)')
    assert finding.status is status
    assert problem.format(root=tmp_path / "aiter") in finding.problems[0]


def test_every_definition_has_to_fit(tmp_path: Path) -> None:
    text = "if ROCM:\n  def f(x, eps): ...\nelse:\n  def f(x): ...\n"
    finding = one(tmp_path, {"a.py": text}, '"aiter.a:f"(x, eps)')
    assert finding.problems == ("2 arguments are passed by position, and it takes 1",)


@pytest.mark.parametrize(
    ("parameters", "call", "problem"),
    [
        ("x", "(x, x = eps)", "`x` is passed twice, by position and by name"),
        ("x, /, eps", "(x, eps = eps)", None),
        ("x, eps, /", "(x, eps = eps)", "it has no parameter `eps`"),
        ("*args, **kwargs", "(x, eps, scale = eps)", None),
        ("*, x, eps=1", "(x = x)", None),
        ("x, eps, mode", "(x, eps)", "`mode` has no default and is not passed"),
    ],
)
def test_calls(tmp_path: Path, parameters: str, call: str, problem: str | None) -> None:
    finding = one(tmp_path, {"a.py": f"def f({parameters}): ...\n"}, f'"aiter.a:f"{call}')
    assert (finding.problems[0] if finding.problems else None) == problem


def test_files_that_are_no_files(tmp_path: Path) -> None:
    """A pipe is not waited for, and a link to itself is not followed."""
    root = write(tmp_path, {}) / "aiter"
    os.mkfifo(root / "a.py")
    (root / "b.py").symlink_to("b.py")
    (root / "c.py").mkdir()
    (root / "loop").symlink_to(".")
    for module in ("a", "b", "c", "loop.loop.a"):
        finding = one(tmp_path, {}, f'"aiter.{module}:f"(x, eps)')
        assert finding.status is Status.MISSING


def test_not_all_is_told_of_what_has_no_end(tmp_path: Path) -> None:
    many = ", ".join(f"p{i}" for i in range(1000))
    finding = one(tmp_path, {"a.py": f"def f(x, eps, {many}): ...\n"}, '"aiter.a:f"(x, eps)')
    assert len(finding.problems) == 21
    assert finding.problems[-1] == "and 980 more"


def test_ill_written_source_gives_no_warnings(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    one(tmp_path, {"a.py": 'x = "\\d"\n' + DEF}, '"aiter.a:f"(x, eps)')
    assert not recwarn.list


def test_signatures_are_read_as_they_are_written() -> None:
    parameters = signature("(a, /, b=1, *, c, d=(1, 'x'))")
    assert [(p.name, p.default, p.by_position, p.by_name) for p in parameters] == [
        ("a", None, True, False),
        ("b", "1", True, True),
        ("c", None, False, True),
        ("d", "(1, 'x')", False, True),
    ]


# --- trees ---------------------------------------------------------------------------------------


def test_a_tree_is_the_package_or_holds_it(tmp_path: Path) -> None:
    root = write(tmp_path, {"_version.py": '__version__ = version = "0.1.20"\n'})
    for path in (root, root / "aiter"):
        assert tree_at(path).root == root / "aiter"
        assert tree_at(path).version == "0.1.20"
    (root / "aiter" / "_version.py").write_text("(((")
    assert tree_at(root).version is None


def asyncio_package(place: Path) -> Path:
    """As the package `aiter` of PyPI is laid out."""
    (place / "aiter").mkdir(parents=True)
    for name in ("__init__.py", "map_aiter.py", "join_aiters.py"):
        (place / "aiter" / name).write_text("")
    return place


def test_another_package_of_that_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = asyncio_package(tmp_path)
    with pytest.raises(NoTree, match=r"is not AMD's AITER but another package of that name"):
        tree_at(place)
    monkeypatch.syspath_prepend(str(place))
    assert not is_installed()
    with pytest.raises(NoTree, match=r"about asynchronous iterators; AMD's is `amd-aiter`"):
        installed_tree()


def test_the_installed_package_is_found_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path, {"__init__.py": "raise RuntimeError('ROCm version file not found')\n"})
    monkeypatch.syspath_prepend(str(root))
    assert installed_tree().root == root / "aiter"
    assert is_installed()


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("nothing", "`nothing` is no directory"),
        ("file", "`file` is no directory"),
        ("empty", "`empty` holds no package `aiter`"),
        ("n" * 5000, "cannot read `nnn"),
    ],
)
def test_paths_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("empty").mkdir()
    with pytest.raises(NoTree, match=problem):
        tree_at(Path(path))
