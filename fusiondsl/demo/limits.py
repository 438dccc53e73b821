"""How far a fused call may be from what it replaces, derived by counting roundings.

The references of the fused ops and the plain ops compute the same but for where they round to
bf16 and in which order f32 is summed. Rounding to bf16 moves a value by less than `U` of it, to
f32 by less than `U32`; neighbouring values are between `U` and `2 * U` apart. Where bf16 is
rounded, f32's own errors, hundreds of times smaller at worst, are left out.

sum: the residual stream is added alike in both: the same bits.

f32: a sum of `n` squares in any order is within `(n - 1) * U32` of the exact one, which the
references take; the two means add 2 roundings, the eps 2 more, and the root halves that. Root,
reciprocal, row and product add 8. That makes `(n + 3) / 2 + 8` times `U32`, at most as many ulps.

bf16: the plain ops round the normalised row before the weight, the fused call does not. Ahead of
the last rounding the two differ by less than `U`, so by less than one ulp, and values less than
an ulp apart round to the same or to neighbouring ones.

fp8: the plain ops quantise what was rounded twice (row or SiLU, then product), the fused call what
was not rounded at all. Values and scales each differ by less than `2 * U`, their quotients by
about `4 * U`, a 64th. Neighbouring codes are at least a 16th apart, so a code stays or moves one
step, and of values that lie evenly between codes at most a quarter moves. The largest step is 32
of 448, to which the scale adds its own difference.

mxfp4: a scale is a power of two: it stays, doubles or halves. Where it stays, values differ by
less than `2 * U` and neighbouring codes by at least a quarter, so a code moves at most one step,
and of evenly spread values one in 32 moves. A scale moves where the largest magnitude of its
group lies within `2 * U` of a boundary; of logarithmically spread ones that is a share of
`2 * U / ln 2`, in whose groups any code may move. The largest step, from 4 to 6, is half of 4.

product: a moved code is off by a step, at most half its value, and a share of `2 * U` over that
step is moved: the mean square error is `U` of the mean square. Weights of random sign pass the
relative error on, `sqrt(U)`, and no mean is above the root mean square.

The whole decoder: to first order, differences add up. How much one grows on its way is measured
on eager, as what becomes of inputs that are moved by an ulp; no fused call's is taken to grow
more than that of the input, which passes all layers.

Steps, ulps, scales and largest errors of fused calls are bounds. Shares and mean errors rest on
what is said of spread and signs, and the decoder's limits on the first order. None is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fusiondsl.demo.sites import Quantity, SiteComparison
from fusiondsl.verify.numerics import Comparison, PackedComparison

U = 2.0**-8
U32 = 2.0**-24
"""Unit roundoffs of bf16 and f32."""


@dataclass(frozen=True)
class Limit:
    steps: float
    """The most values, or codes, that one may move."""
    share: float = 1.0
    """Of values or codes that differ."""
    scale: float = 0.0
    """Difference of two scales, relative to the larger."""
    mean_error: float = math.inf
    max_error: float = math.inf


def limit_of(site: SiteComparison) -> Limit:
    if site.quantity == "f32":
        return Limit(steps=(site.width + 3) // 2 + 8)
    return _LIMITS[site.quantity]


_LIMITS: dict[Quantity, Limit] = {
    "sum": Limit(steps=0, share=0.0),
    "bf16": Limit(steps=1, max_error=2 * U),
    "fp8": Limit(1, share=4 * U / 2**-4, scale=2 * U, max_error=32 / 448 + 2 * U),
    "mxfp4": Limit(1, share=2 * U / 2**-2 + 2 * U / math.log(2), scale=1 / 2, max_error=2 / 4),
    "product": Limit(steps=math.inf, mean_error=math.sqrt(U)),
}


def whole_limit(
    sites: Sequence[SiteComparison],
    nudge: Comparison,
    nudged: Comparison | PackedComparison,
) -> Limit:
    """For an output of the decoder; `nudged` is that output for inputs moved by `nudge`."""

    def grown(error: Callable[[Comparison | PackedComparison], float]) -> float:
        total = sum(error(site.found) for site in sites if site.quantity != "mxfp4")
        return max(1.0, error(nudged) / error(nudge)) * total

    return Limit(
        math.inf,
        scale=math.inf,
        mean_error=grown(lambda found: found.mean_error),
        max_error=grown(lambda found: found.max_error),
    )


def exceeded(found: Comparison | PackedComparison, limit: Limit) -> Iterator[str]:
    measured = {
        "moved by": (steps(found), limit.steps),
        "share that differs": (share(found), limit.share),
        "mean error": (found.mean_error, limit.mean_error),
        "largest error": (found.max_error, limit.max_error),
    }
    if isinstance(found, PackedComparison):
        measured["difference of scales"] = (found.scale_error, limit.scale)
    for what, (value, most) in measured.items():
        if not value <= most:
            yield f"{what} {value:.3g}, over {most:.3g}"


def steps(found: Comparison | PackedComparison) -> int:
    return found.code_steps if isinstance(found, PackedComparison) else found.max_ulp


def share(found: Comparison | PackedComparison) -> float:
    return found.code_flips if isinstance(found, PackedComparison) else found.flip_rate
