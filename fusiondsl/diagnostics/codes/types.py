"""Codes FD200 to FD299: types, shapes, dtypes and arity."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {
    "FD200": CodeInfo(
        "too many arguments",
        "A call writes the parameters that are read, in order. Write-only buffers (`out`) and "
        "ordering tokens are not written; buffers come back as results.",
    ),
    "FD201": CodeInfo(
        "an argument is given twice",
        "A parameter is given by position or by keyword, not both.",
    ),
    "FD202": CodeInfo(
        "an argument is missing",
        "Parameters without a default have to be given. In `match`, an argument left out must "
        "have its default in the graph.",
    ),
    "FD203": CodeInfo(
        "wrong number of results",
        "The left side has at most as many names as the call has results: own results first, then "
        "the arguments it writes into. Fewer names leave the rest unnamed; `_` skips one. A call "
        "with several results cannot stand inside an expression.",
    ),
    "FD204": CodeInfo(
        "wrong number of arguments of a function or table",
        "Built-in functions and tables take their arguments by position.",
        "let X = ceil_div(4)",
    ),
    "FD205": CodeInfo(
        "unknown parameter",
        "The op, primitive or function has no parameter of this name that a call may write.",
    ),
    "FD206": CodeInfo(
        "a value is not of the declared type",
        "An annotation, or the result type of an op, does not fit what the statement computes.",
    ),
    "FD207": CodeInfo(
        "wrong dtype",
        "The argument has a dtype that the parameter does not take, or that differs from another "
        "argument which has to be equal.",
    ),
    "FD208": CodeInfo(
        "the FP8 flavours may differ",
        "`fp8` is f8e4m3fnuz on gfx942 and f8e4m3fn elsewhere. The same bits mean different "
        "numbers, so a fixed flavour fits only where `where` fixes `env.arch` too.",
    ),
    "FD209": CodeInfo(
        "wrong number of dimensions",
        "`name..` stands for any number of leading dimensions; an op of fixed rank sees a value "
        "with `name..` as if these were one dimension.",
    ),
    "FD210": CodeInfo(
        "sizes differ",
        "The sizes are different, or nothing in the rule says that they are equal. In `replace` "
        "equality has to be known; add a condition to `where`.",
    ),
    "FD211": CodeInfo(
        "impossible view, slice or axis",
        "A view keeps the number of elements, a slice lies inside its tensor, and an axis exists.",
    ),
    "FD212": CodeInfo(
        "misplaced leading dimensions",
        "`name..` stands first in a type, and a parameter binds it.",
        "op f(x: bf16[T, t..]) -> bf16[T]",
    ),
    "FD213": CodeInfo(
        "a negative size",
        "Sizes are zero or more.",
        "op f(x: bf16[0 - 1])",
    ),
    "FD214": CodeInfo(
        "division by zero",
        "The divisor is the number 0.",
        "let X = 3 / 0",
    ),
    "FD215": CodeInfo(
        "the arguments do not determine a size",
        "The sizes of results follow from those of the inputs and from `int` parameters. Of "
        "`D[T, Q + 2 * K]` alone neither `Q` nor `K` is known.",
        "op f(x: D[A + B]) -> (y: D[A]) { means axiom }",
    ),
    "FD216": CodeInfo(
        "a result whose dtype is a set",
        "A parameter may be of any dtype of a set; a result has one dtype. Use a variable that a "
        "parameter binds, or a parameter of kind `dtype`.",
    ),
    "FD217": CodeInfo(
        "a value may be `none`",
        "An optional input (`?`) may be passed only where `none` is taken, or after a condition "
        "`x is not none`.",
    ),
    "FD218": CodeInfo(
        "wrong kind of argument",
        "Tensors, numbers, strings, dtypes and lists are never converted into each other; only a "
        "whole number may stand for a float.",
    ),
    "FD219": CodeInfo(
        "bitcast between sizes",
        "A bitcast keeps the bytes, so both dtypes have elements of one size.",
    ),
    "FD220": CodeInfo(
        "wrong kind of operand",
        "The operation, comparison or condition needs another kind of value, such as a number "
        "where a dtype stands.",
        "let X = 3 + bf16",
    ),
    "FD221": CodeInfo(
        "not allowed here",
        "Some constructs belong to one place: `_` to `match`, forms and strides of what an op "
        "reads, `~`, `round?` and `case` to `means`, ranges to subscripts.",
    ),
    "FD222": CodeInfo(
        "a default that does not fit",
        "The default of a parameter is a constant of its kind; `none` needs a `?`.",
        "extern op a.b(x: int = 1.5)",
    ),
    "FD223": CodeInfo(
        "a result is not computed",
        "`means` assigns every result by name, a form at least one.",
    ),
    "FD224": CodeInfo(
        "a form leaves a parameter open",
        "When a form is recognised, every parameter of the op must have a value: from the form's "
        "body, from `where { parameter == value }` of the form, or its default.",
    ),
    "FD225": CodeInfo(
        "a rule replaces nothing",
        "`replace` assigns values that `match` names; those are replaced.",
    ),
    "FD226": CodeInfo(
        "used and replaced",
        "A matched value that `replace` uses is kept with its producer, so it cannot be replaced "
        "as well.",
    ),
    "FD228": CodeInfo(
        "a `let` that grows too large",
        "Lets of lets multiply. A number fits into 64 bits, an expression has at most 1,000 parts.",
        "let A = 4_000_000_000 * 4_000_000_000",
    ),
    "FD229": CodeInfo(
        "a source without operations",
        "`match` has to call at least one op or primitive; otherwise it fits everywhere.",
    ),
    "FD227": CodeInfo(
        "one value replaced twice",
        "Equal calls are one value, whatever names it has.",
    ),
    "FD230": CodeInfo(
        "a target without a meaning",
        "`fuse` makes the source of a rule from the `means` of its target. An op without `means`, "
        "or with `means axiom`, says nothing that could be looked for.",
        "fuse fp8_static_quant",
    ),
    "FD231": CodeInfo(
        "a meaning with two sides",
        "`case` in the meaning of a `fuse` target has to be decided: fix the parameter that it "
        "asks about, or name an optional one to say that it is given.",
    ),
    "FD232": CodeInfo(
        "a parameter cannot have this value",
        "`fuse op(name = value)` takes constants of the declared type: numbers, strings, dtypes, "
        "constants made by `let`, and `none` for what is optional.",
    ),
    "FD233": CodeInfo(
        "a result that is an input",
        "What a rule replaces is computed by its source. A result that the meaning of the target "
        "takes over from its arguments has nothing to be replaced.",
    ),
    "FD234": CodeInfo(
        "a parameter that the meaning does not say",
        "A derived source can only bind parameters that the meaning of the target reads.",
    ),
    "FD235": CodeInfo(
        "`read_as` asks nothing",
        "`read_as(value, op.parameter, ...)` is a condition of its own in the `where` of a rule: "
        "whoever reads `value`, which the rule replaces, reads it as one of these parameters. "
        "`name = scalar` says what else the reader is given.",
        "where { attended: read_as(k, attention.key, l = layer) }",
    ),
    "FD236": CodeInfo(
        "`unread` where it says nothing",
        "An op whose meaning is not written out may say `unread parameter when condition`: nothing "
        "depends on that tensor then. A rule whose readers are such arguments only may replace a "
        "value by any other, which it names in its `allow`.",
        "allow { unread: k }",
    ),
}
