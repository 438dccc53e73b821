"""Reference collectives on one rank and in a world that the test supplies."""

from __future__ import annotations

import torch

from fusiondsl.ops.references.collectives import all_reduce, reference_world


def test_alone_it_is_a_copy() -> None:
    x = torch.randn(3, 4)
    y = all_reduce(x, "tp:0")
    assert torch.equal(x, y)
    assert x.data_ptr() != y.data_ptr()


def test_ranks_are_added_in_order_and_rounded_once() -> None:
    ranks = [torch.randn(3, 64, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    halves = [r.bfloat16() for r in ranks]
    with reference_world(lambda x, group: halves):
        y = all_reduce(halves[0], "tp:0")
    total = halves[0].float()
    for other in halves[1:]:
        total = total + other.float()
    assert torch.equal(y, total.bfloat16())
    assert torch.equal(all_reduce(halves[0], "tp:0"), halves[0])
