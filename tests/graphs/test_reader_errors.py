"""Text that is no graph: located diagnostics, exit code 2, and never an execution."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusiondsl.diagnostics.codes import CODES
from fusiondsl.diagnostics.diagnostic import Diagnostic, FusionError
from fusiondsl.graphs import read
from tests.graphs.test_reader import body


def refusal(source: str | Path) -> Diagnostic:
    with pytest.raises(FusionError) as caught:
        built(source)
    assert caught.value.exit_code == 2
    assert all(d.code in CODES for d in caught.value.diagnostics)
    return caught.value.diagnostics[0]


def built(source: str | Path) -> None:
    """Reads the graphs and builds them: graphs are built when they are asked for."""
    for graph in read(source):
        graph.gm.graph.lint()


X = 'x: "f32[4][1]cpu"'


@pytest.mark.parametrize(
    ("text", "code", "located"),
    [
        (body("y = torch.ops.aten.neg.default(z)", returned="y"), "FD611", "z"),
        (body("y = torch.ops.aten.neg.default(x", params=X, returned="y"), "FD605", None),
        (body("y = os.system('ls')", returned="y"), "FD612", "os.system"),
        (body("y = __import__('os')", returned="y"), "FD611", "__import__"),
        (body("y = torch.ops.load_library.__call__('f')", returned="y"), "FD612", None),
        (body("y = x.__class__", params=X, returned="y"), "FD612", "x.__class__"),
        (body("y = x.__reduce__()", params=X, returned="y"), "FD612", "x.__reduce__()"),
        (body("y = torch.neg(torch.abs(x))", params=X, returned="y"), "FD612", "torch.abs(x)"),
        (body("y = torch.full((2,), lambda: 1)", returned="y"), "FD605", ":"),
        (body("import os", returned="()"), "FD605", None),
        (body("y x", returned="()"), "FD605", "x"),
        (body("x.y()", params=X), "FD616", "x.y()"),
        (body(params='x: "q7[4]"', returned="x"), "FD609", "q7"),
        (body(params='x: "f32[4"', returned="x"), "FD608", "f32[4"),
        (body(params='x: "f32[4, 4][1]cpu"', returned="x"), "FD613", "f32[4, 4][1]cpu"),
        (body(params='x: "f32[-4][1]cpu"', returned="x"), "FD613", "f32[-4][1]cpu"),
        (body(params='x: "f32[4][1]gpu:0"', returned="x"), "FD610", "gpu:0"),
        (body(params='x: "f32[s0 / 0][1]cpu"', returned="x"), "FD608", None),
        (body(params='x: "f32[f(s0)][1]cpu"', returned="x"), "FD608", "f(s0)"),
        (body(params=f"{X}, {X}", returned="x"), "FD615", "x"),
        (body("y = f(a = 1, a = 2)", returned="y"), "FD605", "a"),
        (body("y = f(lambda = 1)", returned="y"), "FD605", "lambda"),
        (body("y = x.lambda(1)", params=X, returned="y"), "FD605", "lambda"),
        (body("y = self.import", returned="y"), "FD605", "import"),
        (body("y = torch.neg(" + "9" * 100 + ")", returned="y"), "FD607", "9" * 100),
        (body(params="class", returned="()"), "FD605", "class"),
        (body(params="x = torch.ops.aten.neg", returned="x"), "FD612", "torch.ops.aten.neg"),
        (body(params="x = torch.ops.a.b", returned="x"), "FD612", "torch.ops.a.b"),
        (body(params=f"s = 1, {X}", returned="x"), "FD605", "x"),
        ("just prose\nwithout any graph\n", "FD604", ""),
        ("\n", "FD604", ""),
    ],
)
def test_refused(text: str, code: str, located: str | None) -> None:
    diagnostic = refusal(text)
    assert diagnostic.code == code
    assert diagnostic.span is not None
    if located is not None:
        assert diagnostic.span.text == located


def test_several_faults_in_one_run() -> None:
    with pytest.raises(FusionError) as caught:
        built(body("a = torch.ops.aten.neg.default(z)", "c = os.getcwd()"))
    assert [d.span and d.span.line for d in caught.value.diagnostics] == [3, 4]
    with pytest.raises(FusionError) as caught:
        built(body("a b", "a = 1 2", "c = ]"))
    assert [d.span and d.span.line for d in caught.value.diagnostics] == [3, 4, 5]


@pytest.mark.parametrize("open_", ["(", "[", "-", "f(", "{", "not ", "a."])
def test_deep_nesting_is_refused(open_: str) -> None:
    assert refusal(body(f"y = {open_ * 100_000}", returned="y")).code in {"FD605", "FD606"}


def test_a_megabyte_of_operators() -> None:
    assert refusal(body("y = " + "x + " * 250_000, params=X, returned="y")).code


def test_deep_size_expression() -> None:
    text = body(params=f'x: "Sym({"(" * 50_000}s0{")" * 50_000})"', returned="x")
    assert refusal(text).code == "FD606"


def test_huge_power() -> None:
    assert refusal(body(params='x: "Sym(s0**1000000)"', returned="x")).code == "FD608"


def test_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere.txt").code == "FD600"
    assert refusal(tmp_path).code == "FD600"
    assert refusal("nowhere\0.txt").code == "FD600"


def test_binary_and_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "graph.txt"
    path.write_bytes(b"def forward(self):\n\0")
    assert refusal(path).code == "FD601"
    path.write_bytes("def forward(self):  # Grüße\n".encode("latin-1"))
    assert refusal(path).code == "FD602"


def test_a_torch_function_that_is_no_op_is_never_found_again() -> None:
    (only,) = read(body("y = torch.load('f')", returned="y"))
    with pytest.raises(NotImplementedError):
        only.gm()


def test_nothing_is_executed(tmp_path: Path) -> None:
    target = tmp_path / "made"
    call = f"open({str(target)!r}, 'w')"
    for line in (f"y = {call}", f"y = torch.ops.aten.neg.default({call})"):
        refusal(body(line, returned="y"))
    refusal(body(params=f'x: "f32[{call}][1]cpu"', returned="x"))
    refusal(body(params=f"x: ({call}) = 1", returned="x"))
    assert not target.exists()
