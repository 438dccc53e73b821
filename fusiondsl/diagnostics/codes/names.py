"""Codes FD100 to FD199: names, imports and duplicate definitions."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {
    "FD101": CodeInfo(
        "defined twice",
        "Ops, rules, tables, lets and dtype sets have one definition each, in all files that are "
        "read together. Files that need the same thing import the file that defines it.",
        "let LIMIT = 1\nlet LIMIT = 2",
    ),
    "FD102": CodeInfo(
        "an import leads nowhere",
        "A path is relative to the file that imports it; `fusiondsl:` stands for the shipped "
        'patterns (`import "fusiondsl:ops/norms.fuse"`).',
        'import "no_such_file.fuse"',
    ),
    "FD103": CodeInfo(
        "files import each other in a circle",
        "The note shows the chain. Move what both need into a third file.",
    ),
    "FD104": CodeInfo(
        "a word of the language is no name",
        "Dtypes (`bf16`, `fp8`, `any`) and built-in functions keep their meaning everywhere.",
        "let bf16 = 3",
    ),
    "FD105": CodeInfo(
        "a file is imported twice",
        "One `import` of a file is enough, however its path is spelt.",
    ),
    "FD106": CodeInfo(
        "a name stands twice in one list",
        "Results and forms of an op and the bindings of an example have different names; a result "
        "must not be called like a parameter either.",
    ),
    "FD107": CodeInfo(
        "a label stands twice",
        "Labels name the condition that refuses a rule, so each stands for one condition.",
    ),
    "FD108": CodeInfo(
        "a name is bound twice",
        "Parameters, sizes, dtype variables, lets and values of one rule or op share one space of "
        "names, and each name is bound once: a value never changes.",
    ),
    "FD109": CodeInfo(
        "a `let` is defined by itself",
        "The value of a `let` may use other lets, but not itself, directly or through others.",
        "let A = B + 1\nlet B = A + 1",
    ),
    "FD110": CodeInfo(
        "unknown name",
        "Names are bound by the parameter list, by the left side of a statement, by a size in a "
        "type, or by a `let`. Nothing is declared by using it.",
    ),
    "FD111": CodeInfo(
        "unknown dtype",
        "A dtype is a concrete one (`bf16`, `f32`, `f8e4m3fn`, ...), `fp8`, `any`, a set defined "
        "by `dtypes`, a parameter of kind `dtype`, or a variable. Variables start with a capital "
        "letter and are bound by a parameter.",
        "op f(x: bf61[T]) -> bf16[T]",
    ),
    "FD112": CodeInfo(
        "unknown op",
        "An op is declared with `op` or `extern op`, in this file or in one it imports.",
    ),
    "FD113": CodeInfo(
        "unknown method",
        "Tensors have the methods `to float view reshape flatten unsqueeze squeeze pow square "
        "mean sum amax amin abs neg exp sqrt rsqrt reciprocal sigmoid clamp clamp_min clamp_max "
        "split chunk`.",
    ),
    "FD114": CodeInfo(
        "unknown function",
        "Conditions and sizes may call `ceil_div round_up min max product itemsize is_pow2` and "
        "tables.",
        "let X = sqrt(4)",
    ),
    "FD115": CodeInfo(
        "unknown fact",
        "The facts of environment and model are a fixed list, because the host has to supply them.",
        "let X = env.tp_szie",
    ),
    "FD116": CodeInfo(
        "unknown difference",
        "Numeric differences are `round assoc recip reduce_order neg_zero amax_floor saturate`; "
        "`relayout` allows other strides, `unread` any value where nothing depends on it.",
    ),
    "FD117": CodeInfo(
        "unknown rule",
        "`before`, `after` and `expect` name rules of any file that is read together with this "
        "one.",
    ),
    "FD119": CodeInfo(
        "an op without a torch name of its own",
        "An extern op is an existing torch op, `namespace.name`. Other ops are registered as "
        "`fusiondsl::name`, dots written as `_`, so `a.b` and `a_b` would be one op.",
        "extern op add(x: D[T]) -> D[T]",
    ),
    "FD120": CodeInfo(
        "the graph of a contract is elsewhere",
        "A contract and its graph stay together: the path is relative to the file and does not "
        "leave its folder. Rules of other folders are imported.",
    ),
    "FD121": CodeInfo(
        "the graph of a contract is missing",
        "Rules work without the graphs they are tested with, so this is a warning of "
        "`fusiondsl check`, and it is `fusiondsl test` that fails.",
    ),
    "FD122": CodeInfo(
        "two contracts for one thing",
        "A rule has one number of sites in a graph, target and token counts being the same.",
    ),
    "FD118": CodeInfo(
        "unknown label",
        "`because` names a condition of the rule, or of an op that its `replace` calls.",
    ),
}
