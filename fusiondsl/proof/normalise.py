"""Normal forms: rewriting that keeps every bit, or costs one named difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2

from fusiondsl.proof import attrs
from fusiondsl.proof.moves import Cut, move
from fusiondsl.proof.size import Size
from fusiondsl.proof.terms import REAL, Term, shape_of, subterms
from fusiondsl.proof.values import Context

KINDS = ("round", "assoc", "recip", "neg_zero")
"""The differences that rewriting can explain; the others only a declaration can name."""

ELEMENTWISE = frozenset(
    {
        *("neg", "abs", "exp", "exp2", "log2", "sqrt", "rsqrt", "reciprocal", "square", "sigmoid"),
        *("silu", "relu", "tanh", "ceil", "floor", "round_even", "clamp_min", "clamp_max", "pow"),
        "cast",
    }
)
"""Operations on one tensor that do the same to each element, wherever it lies."""

SELECTING = frozenset(["neg", "abs", "relu", "amax", "amin", "maximum", "minimum", "view", "slice"])
"""Operations whose results are among the values of their operands, or these negated."""

LOG2_E = attrs.of_float(attrs.as_f32(log2(2.718281828459045)))


class Normaliser:
    """Normal forms up to the differences in `kinds`."""

    def __init__(self, context: Context, kinds: frozenset[str] = frozenset()) -> None:
        self.context = context
        self.pool = context.pool
        self.formats = context.formats
        self.known = context.known
        self.kinds = kinds
        self._known: dict[Term, Term] = {}
        self._rules = {
            op: [rule.apply for rule in rules if rule.cost is None or rule.cost in kinds]
            for op, rules in RULES.items()
        }
        self._exact: Normaliser | None = None

    def normal(self, term: Term) -> Term:
        for node in subterms(term, self._known):
            self._known[node] = self._rewritten(node)
        return self._known[term]

    def _rewritten(self, node: Term) -> Term:
        if node.op == "bitcast":
            return self._bits(node)
        args = tuple(self._known[arg] for arg in node.args)
        return self.step(self._made(node, args))

    def _bits(self, node: Term) -> Term:
        """What reads single bits sees every difference."""
        if self._exact is None:
            self._exact = Normaliser(self.context) if self.kinds else self
        if self._exact is self:
            args = tuple(self._known[arg] for arg in node.args)
        else:
            args = tuple(self._exact.normal(arg) for arg in node.args)
        return self.pool.make(node.op, args, node.attrs, node.format, node.shape)

    def _made(self, node: Term, args: tuple[Term, ...]) -> Term:
        format = node.format
        if "round" in self.kinds and format and self.formats.rounding(format):
            format = REAL
        return self.pool.make(node.op, args, node.attrs, format, node.shape)

    def step(self, term: Term) -> Term:
        """`term`, whose arguments are normal, as a normal form."""
        if term in self._known:
            return self._known[term]
        for apply in self._rules.get(term.op, ()):
            changed = apply(self, term)
            if changed is not None and changed is not term:
                self._known[term] = changed
                return changed
        self._known[term] = term
        return term

    # --- building: operands are normal -----------------------------------------------------------

    def make(self, op: str, args: tuple[Term, ...], like: Term, marks: attrs.Attr = ()) -> Term:
        """An elementwise operation in the format of `like`."""
        shape = shape_of(*(a.shape for a in args)) if args else like.shape
        made = self.pool.make(op, args, marks, like.format, like.shape if shape is None else shape)
        return self.step(made)

    def number(self, value: float) -> Term:
        return self.pool.scalar(attrs.of_float(value))


# --- casts ----------------------------------------------------------------------------------------


def _cast_to_same(n: Normaliser, t: Term) -> Term | None:
    return t.args[0] if t.args[0].format == t.format else None


def _cast_of_exact_cast(n: Normaliser, t: Term) -> Term | None:
    """The inner cast keeps every value, so only the outer one counts."""
    (inner,) = t.args
    if inner.op != "cast" or not n.formats.lossless(inner.args[0].format, inner.format):
        return None
    source = inner.args[0]
    if source.format == t.format:
        return source
    return n.step(n.pool.make("cast", (source,), (), t.format, t.shape))


def _cast_back(n: Normaliser, t: Term) -> Term | None:
    """Rounding what is representable changes nothing, so widening gives the value back."""
    (inner,) = t.args
    if inner.op != "cast" or inner.args[0].format != t.format:
        return None
    return inner.args[0] if _holds(n, inner.format, inner.args[0]) else None


def _holds(n: Normaliser, format: str, term: Term) -> bool:
    """Are all values of `term` values of `format`?"""
    pending = [term]
    while pending:
        node = pending.pop()
        if node.format == format:
            continue
        if node.op == "cast" and n.formats.lossless(node.args[0].format, node.format):
            if node.args[0].format != format:
                return False
        elif node.op in SELECTING:
            pending.extend(node.args)
        else:
            return False
    return True


def _cast_of_full(n: Normaliser, t: Term) -> Term | None:
    (inner,) = t.args
    if inner.op != "full" or not _is_small(inner.attrs[0]) or not n.formats.is_float(t.format):
        return None
    return n.pool.make("full", (), inner.attrs, t.format, t.shape)


def _is_small(attr: object) -> bool:
    """A constant that every float format of a tensor holds."""
    return isinstance(attr, tuple) and attrs.number(attr) in (0.0, 1.0, -1.0)


def _round_skipped(n: Normaliser, t: Term) -> Term | None:
    (inner,) = t.args
    plain = n.formats.rounding(t.format) and n.formats.rounding(inner.format)
    return inner if plain else None


def _cast_of_neg(n: Normaliser, t: Term) -> Term | None:
    """Rounding does not look at the sign."""
    (inner,) = t.args
    if inner.op != "neg" or not (n.formats.rounding(t.format) and n.formats.rounding(inner.format)):
        return None
    cast = n.step(n.pool.make("cast", inner.args, (), t.format, t.shape))
    return n.step(n.pool.make("neg", (cast,), (), t.format, t.shape))


# --- signs and constants --------------------------------------------------------------------------


def _sub(n: Normaliser, t: Term) -> Term | None:
    x, y = t.args
    if y.op == "scalar":
        # The one attribute of a `scalar` is its value; `Term.attrs` says `Hashable` for all ops.
        value = attrs.number(y.attrs[0])  # type: ignore[arg-type]
        if value is None:
            return None
        return n.make("add", (x, n.number(-value)), t) if n.formats.is_float(t.format) else None
    return n.make("add", (x, n.make("neg", (y,), y)), t)


def _neg_of_neg(n: Normaliser, t: Term) -> Term | None:
    return t.args[0].args[0] if t.args[0].op == "neg" else None


def _neg_of_constant(n: Normaliser, t: Term) -> Term | None:
    (x,) = t.args
    mark = x.attrs[0] if x.op in ("full", "scalar") else None
    if not isinstance(mark, tuple) or mark[0] != "float":
        return None
    value = attrs.of_float(-float.fromhex(mark[1]))
    return n.pool.make(x.op, (), (value,), x.format, x.shape)


def _sign_out(n: Normaliser, t: Term) -> Term | None:
    """Products and quotients with the sign in front."""
    negative = False
    args: list[Term] = []
    for arg in t.args:
        value = _constant(arg)
        if arg.op == "neg":
            negative, arg = not negative, arg.args[0]
        elif value is not None and value < 0:
            negative, arg = not negative, n.number(-value)
        args.append(arg)
    if not negative:
        return None
    return n.make("neg", (n.make(t.op, tuple(args), t),), t)


def _even(n: Normaliser, t: Term) -> Term | None:
    (x,) = t.args
    return n.make(t.op, (x.args[0],), t) if x.op in ("neg", "abs") else None


def _constant(term: Term) -> float | None:
    if term.op != "scalar":
        return None
    mark = term.attrs[0]
    return float.fromhex(mark[1]) if isinstance(mark, tuple) and mark[0] == "float" else None


def _times_one(n: Normaliser, t: Term) -> Term | None:
    x, y = t.args
    if _constant(y) == 1.0 and x.shape == t.shape:
        return x
    return y if t.op == "mul" and _constant(x) == 1.0 and y.shape == t.shape else None


def _zero_sign(term: Term) -> float | None:
    """1.0 or -1.0 for a constant zero of that sign."""
    mark = term.attrs[0] if term.op in ("scalar", "full") else None
    if not isinstance(mark, tuple) or mark[0] != "float":
        return None
    value = float.fromhex(mark[1])
    return None if value else (-1.0 if mark[1].startswith("-") else 1.0)


def _add_zero(n: Normaliser, t: Term) -> Term | None:
    """Exact for `-0`, and for what is never `-0`."""
    for x, zero in (t.args, t.args[::-1]):
        sign = _zero_sign(zero)
        if sign is None or x.shape != t.shape or x.format != t.format:
            continue
        if sign < 0 or "neg_zero" in n.kinds or _never_negative_zero(x):
            return x
    return None


def _never_negative_zero(term: Term) -> bool:
    if term.op in ("square", "abs", "exp", "exp2", "sigmoid"):
        return True
    return term.op in ("mean", "sum", "view", "slice") and _never_negative_zero(term.args[0])


# --- powers and quotients -------------------------------------------------------------------------


def _square(n: Normaliser, t: Term) -> Term | None:
    return n.make("square", t.args[:1], t) if t.args[0] is t.args[1] else None


def _power(n: Normaliser, t: Term) -> Term | None:
    exponent = t.attrs[0]
    value = attrs.number(exponent) if isinstance(exponent, tuple) else None
    if value == 2.0:
        return n.make("square", t.args, t)
    return t.args[0] if value == 1.0 else None


def _one_over(n: Normaliser, t: Term) -> Term | None:
    return n.make("reciprocal", t.args[1:], t) if _constant(t.args[0]) == 1.0 else None


def _silu(n: Normaliser, t: Term) -> Term | None:
    (x,) = t.args
    return n.make("div", (x, _one_plus_exp(n, x)), t)


def _sigmoid(n: Normaliser, t: Term) -> Term | None:
    return n.make("reciprocal", (_one_plus_exp(n, t.args[0]),), t)


def _one_plus_exp(n: Normaliser, x: Term) -> Term:
    powered = n.make("exp", (n.make("neg", (x,), x),), x)
    return n.make("add", (powered, n.number(1.0)), x)


def _exp(n: Normaliser, t: Term) -> Term | None:
    """`exp2` with a rounded factor in its exponent."""
    scaled = n.make("mul", (t.args[0], n.pool.scalar(LOG2_E)), t)
    return n.make("exp2", (scaled,), t)


def _mean(n: Normaliser, t: Term) -> Term | None:
    axis = t.attrs[0]
    (x,) = t.args
    size = attrs.size(axis) if isinstance(axis, tuple) else None
    if size is None or size.value is None:
        return None
    total = n.step(n.pool.make("sum", t.args, t.attrs, t.format, t.shape))
    return n.make("div", (total, n.pool.scalar(("int", x.shape[size.value]))), t)


def _division(n: Normaliser, t: Term) -> Term | None:
    x, y = t.args
    value = _constant(y)
    if value:
        return n.make("mul", (x, n.number(attrs.as_f32(1.0 / value))), t)
    if y.op == "scalar":
        return None
    return n.make("mul", (x, n.make("reciprocal", (y,), t)), t)


def _rsqrt(n: Normaliser, t: Term) -> Term | None:
    return n.make("reciprocal", (n.make("sqrt", t.args, t),), t)


# --- order of operands ----------------------------------------------------------------------------


def _sorted(n: Normaliser, t: Term) -> Term | None:
    args = tuple(sorted(t.args, key=lambda a: a.number))
    if args == t.args:
        return None
    return n.step(n.pool.make(t.op, args, t.attrs, t.format, t.shape))


def _flat_sum(n: Normaliser, t: Term) -> Term | None:
    parts: list[Term] = []
    for arg in t.args:
        same = arg.op == "sum_of" and arg.format == t.format
        parts.extend(arg.args if same else (arg,))
    args = tuple(sorted(parts, key=lambda a: a.number))
    return n.step(n.pool.make("sum_of", args, (), t.format, t.shape))


def _flat_product(n: Normaliser, t: Term) -> Term | None:
    """Factors above and below the line; the attribute counts those above."""
    above: list[Term] = []
    below: list[Term] = []
    for position, arg in enumerate(t.args):
        over, under = (above, below) if t.op == "mul" or position == 0 else (below, above)
        if arg.op == "square":
            over.extend((arg.args[0], arg.args[0]))
        elif arg.op == "product_of" and arg.format == t.format:
            count = arg.attrs[0]
            assert isinstance(count, int)
            over.extend(arg.args[:count])
            under.extend(arg.args[count:])
        else:
            over.append(arg)
    above.sort(key=lambda a: a.number)
    below.sort(key=lambda a: a.number)
    return n.pool.make("product_of", (*above, *below), (len(above),), t.format, t.shape)


# --- movement: towards the inputs -----------------------------------------------------------------


def _whole_slice(n: Normaliser, t: Term) -> Term | None:
    return t.args[0] if t.shape == t.args[0].shape else None


def _slice_of_slice(n: Normaliser, t: Term) -> Term | None:
    (inner,) = t.args
    if inner.op != "slice" or inner.attrs[0] != t.attrs[0]:
        return None
    start, stop = (_bound(t, i) for i in (1, 2))
    offset = _bound(inner, 1)
    marks = (t.attrs[0], ("int", offset + start), ("int", offset + stop))
    return n.step(n.pool.make("slice", inner.args, marks, t.format, t.shape))


def _bound(t: Term, index: int) -> Size:
    mark = t.attrs[index]
    assert isinstance(mark, tuple)
    found: Size = mark[1]
    return found


def _moved_inside(n: Normaliser, t: Term) -> Term | None:
    """A view or slice of an elementwise result is that of its operand."""
    (inner,) = t.args
    if inner.op not in ELEMENTWISE:
        return None
    (x,) = inner.args
    moved = n.step(n.pool.make(t.op, (x,), t.attrs, x.format, t.shape))
    return n.step(n.pool.make(inner.op, (moved,), inner.attrs, inner.format, t.shape))


def _moved_into_both(n: Normaliser, t: Term) -> Term | None:
    (inner,) = t.args
    if inner.op not in ("add", "sub", "mul", "div", "maximum", "minimum"):
        return None
    if any(x.op != "scalar" and x.shape != inner.shape for x in inner.args):
        return None
    args = tuple(
        x if x.op == "scalar" else n.step(n.pool.make(t.op, (x,), t.attrs, x.format, t.shape))
        for x in inner.args
    )
    return n.step(n.pool.make(inner.op, args, inner.attrs, inner.format, t.shape))


def _moved_full(n: Normaliser, t: Term) -> Term | None:
    (inner,) = t.args
    if inner.op != "full":
        return None
    return n.pool.make("full", (), inner.attrs, inner.format, t.shape)


def _view_of_view(n: Normaliser, t: Term) -> Term | None:
    (inner,) = t.args
    if inner.op != "view":
        return None
    return n.step(n.pool.make("view", inner.args, (), t.format, t.shape))


def _permitted(n: Normaliser, t: Term) -> Term | None:
    """What moves where a condition says so."""
    found = move(n.context, t)
    if found is None or found.missing(n.known) is not None:
        return None
    if isinstance(found, Cut):
        return found.inner
    call = found.call
    x, *others = call.args
    viewed = n.step(n.pool.make("view", (x,), (), x.format, found.shape))
    return n.step(n.pool.make("call", (viewed, *others), call.attrs, call.format, t.shape))


def _rounded_perhaps(n: Normaliser, t: Term) -> Term | None:
    return t.args[0]


@dataclass(frozen=True, slots=True)
class Rewrite:
    apply: Callable[[Normaliser, Term], Term | None]
    cost: str | None = None


_MOVES = [
    *(Rewrite(_moved_full), Rewrite(_moved_inside), Rewrite(_moved_into_both)),
    Rewrite(_permitted),
]

RULES: dict[str, list[Rewrite]] = {
    "cast": [
        Rewrite(_cast_to_same),
        Rewrite(_cast_of_exact_cast),
        Rewrite(_cast_back),
        Rewrite(_cast_of_neg),
        Rewrite(_cast_of_full),
        Rewrite(_round_skipped, "round"),
    ],
    "maybe_round": [Rewrite(_rounded_perhaps, "round")],
    "add": [Rewrite(_add_zero), Rewrite(_sorted), Rewrite(_flat_sum, "assoc")],
    "sub": [Rewrite(_sub)],
    "neg": [Rewrite(_neg_of_neg), Rewrite(_neg_of_constant)],
    "abs": [Rewrite(_even)],
    "square": [Rewrite(_even)],
    "mul": [
        Rewrite(_times_one),
        Rewrite(_sign_out),
        Rewrite(_square),
        Rewrite(_sorted),
        Rewrite(_flat_product, "assoc"),
    ],
    "div": [
        Rewrite(_times_one),
        Rewrite(_sign_out),
        Rewrite(_one_over),
        Rewrite(_division, "recip"),
        Rewrite(_flat_product, "assoc"),
    ],
    "pow": [Rewrite(_power)],
    "silu": [Rewrite(_silu)],
    "sigmoid": [Rewrite(_sigmoid, "recip")],
    "rsqrt": [Rewrite(_rsqrt, "recip")],
    "exp": [Rewrite(_exp, "round")],
    "mean": [Rewrite(_mean, "round")],
    "maximum": [Rewrite(_sorted, "neg_zero")],
    "minimum": [Rewrite(_sorted, "neg_zero")],
    "slice": [Rewrite(_whole_slice), Rewrite(_slice_of_slice), *_MOVES],
    "view": [Rewrite(_whole_slice), Rewrite(_view_of_view), *_MOVES],
}
