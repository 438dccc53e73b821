"""`check --torch`: declarations against ops that are really registered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fusiondsl.diagnostics.diagnostic import Diagnostic, Diagnostics
from fusiondsl.rules import load_source
from fusiondsl.verify.installed import check_installed


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    """Ops of a library that has moved on since its declarations were written."""
    lib = torch.library.Library("drifted", "FRAGMENT")
    lib.define("same(Tensor(a!) out, Tensor x, float eps=1e-6, *, bool flag=False) -> ()")
    lib.define("renamed(Tensor x, float epsilon) -> Tensor")
    lib.define("changed(Tensor(a!) x, Tensor? bias=None, int n=2) -> (Tensor, Tensor)")
    lib.define("broken_fake(Tensor x, Tensor? scales) -> Tensor")
    torch.library.register_fake("drifted::broken_fake", _no_scales, lib=lib)
    yield
    lib._destroy()


def _no_scales(x: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
    if scales is not None:
        raise NotImplementedError("scales are not supported")
    return torch.empty_like(x)


def found(text: str) -> list[Diagnostic]:
    diagnostics = Diagnostics()
    check_installed(load_source(text).program, diagnostics)
    return list(diagnostics)


def test_equal_schema() -> None:
    assert not found(
        "extern op drifted.same(out out: D[T], x: D[T], eps: float = 1e-6, *, flag: bool = false)"
    )


def test_missing_op_is_passed_over() -> None:
    assert not found("extern op drifted.not_there(x: D[T]) -> D[T]")


def test_renamed_argument() -> None:
    (item,) = found("extern op drifted.renamed(x: D[T], eps: float) -> D[T]")
    assert item.code == "FD510"
    assert item.notes[0] == "arguments are x, epsilon, declared are x, eps"


def test_every_difference_is_named() -> None:
    (item,) = found("extern op drifted.changed(x: D[T], bias: D[T], *, n: int = 3) -> D[T]")
    assert item.notes[:-1] == (
        "`x` is written",
        "`bias` may be none",
        "`bias` has a default",
        "`n` is not keyword-only",
        "the default of `n` is 2, declared is 3",
        "it returns 2 values, declared are 1",
    )


FAKE = """
extern op drifted.broken_fake(x: D[T], scales: f32[T]?) -> D[T]
op ours(x: D[T], scales: f32[T]) -> (y: D[T]) { means axiom }
rule r(x: D[T], scales: f32[T]) {
  match { y = ours(x, scales) }
  replace { y = drifted.broken_fake(x, scales) }
}
"""


def test_fake_that_raises() -> None:
    (item,) = found(FAKE)
    assert item.code == "FD511"
    assert item.notes == ("NotImplementedError: scales are not supported",)
    assert item.span is not None
    assert item.span.text == "drifted.broken_fake(x, scales)"


IMPL = """
op wrapper(x: D[T]) -> (y: D[T]) { means { y = abs(x) }; impl "torch:drifted::renamed"(x) -> (y) }
op semantic(x: D[T]) -> (y: D[T]) { means { y = abs(x) } }
rule r(x: D[T]) { match { y = semantic(x) }; replace { y = wrapper(x) } }
"""


def test_kernel_with_other_arguments() -> None:
    (item,) = found(IMPL)
    assert item.code == "FD513"
    assert item.notes == ("`epsilon` is missing",)
