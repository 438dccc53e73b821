"""Codes FD001 to FD099: reading files and their syntax."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

UNREADABLE = frozenset({"FD001", "FD002", "FD003", "FD004", "FD005"})
"""Input that cannot be read at all: exit code 2 instead of 3."""

CODES: dict[str, CodeInfo] = {
    "FD001": CodeInfo(
        "the file cannot be read",
        "The path does not exist, is a directory where a file was expected, or may not be read.",
    ),
    "FD002": CodeInfo(
        "the file is not UTF-8",
        "Rule files are UTF-8 text, with or without a byte order mark. Convert the file.",
    ),
    "FD003": CodeInfo(
        "the file is binary",
        "The file holds NUL bytes, so it is not text. Was a compiled artifact given by mistake?",
    ),
    "FD004": CodeInfo(
        "the file is too large",
        "A rule file may hold 64 MiB. Split it and `import` the parts.",
    ),
    "FD005": CodeInfo(
        "the file type is unknown",
        "The suffix decides how a file is read: `.fuse`, or `.yaml` and `.yml`.",
    ),
    "FD006": CodeInfo(
        "the file declares nothing",
        "An empty file, or one with comments only, is a valid empty pack; usually it is a mistake.",
    ),
    "FD007": CodeInfo(
        "the output file already exists",
        "Converting writes a new file beside the old one and never replaces a file.",
    ),
    "FD008": CodeInfo(
        "a file cannot be written",
        "The folder does not exist or may not be written, or the disk is full. A file that was "
        "there before is left as it was.",
    ),
    "FD010": CodeInfo(
        "unexpected token",
        "The text does not follow the grammar at this place. The message lists what could stand "
        "there instead; reading goes on at the next item that starts at the left margin.",
        "rule r(x: D[T]) { match { y = f(x z) } replace { y = g(x) } }",
    ),
    "FD011": CodeInfo(
        "a bracket is not closed",
        "Inside `(` and `[` newlines do not end a statement, so the reader only notices a missing "
        "bracket later. The label points at the bracket that was opened.",
        "let X = (1 + 2",
    ),
    "FD012": CodeInfo(
        "unknown item or clause",
        "Only the items and clauses of the language may stand here; see `docs/language.md`.",
        "rul r(x: D[T]) { }",
    ),
    "FD013": CodeInfo(
        "unexpected character",
        "The character is not part of the language outside strings and comments.",
        "let X = 3 $ 4",
    ),
    "FD014": CodeInfo(
        "broken string",
        "A string starts and ends with a double quote on one line. Escapes are `\\n`, `\\t`, "
        '`\\r`, `\\\\`, `\\"` and `\\u` with four hexadecimal digits.',
        'import "ops.fuse',
    ),
    "FD015": CodeInfo(
        "nested too deeply, or too long",
        "Brackets, blocks and chains of operators may nest 64 deep, and a statement may have "
        "20,000 tokens. Name a part of the expression, or split the rule.",
    ),
    "FD016": CodeInfo(
        "clause given twice",
        "This clause may stand once in an op or rule; put all its lines into one block.",
    ),
    "FD017": CodeInfo(
        "clause or key missing",
        "A rule needs `match` and `replace` with at least one statement each; in YAML, items need "
        "their `name` and other required keys.",
        "rule r(x: D[T]) { match { y = f(x) } }",
    ),
    "FD018": CodeInfo(
        "number out of range",
        "Integers are limited to 64 bits and floats to finite IEEE doubles.",
        "let X = 99999999999999999999",
    ),
    "FD019": CodeInfo(
        "broken type",
        "A type is a scalar kind (`int`, `float`, `bool`, `str`, `dtype`, `layer`), a list of one "
        "(`int[]`), or a tensor with its dimensions (`D[tokens.., H]`).",
        "op f(x: D) -> D[T]",
    ),
    "FD020": CodeInfo(
        "broken parameter or argument list",
        "A positional argument may not follow a keyword argument, a keyword may stand once, and "
        "`*` (only keywords from here) may stand once.",
        "let X = f(k = 1, 2)",
    ),
    "FD021": CodeInfo(
        "too many errors",
        "Reading stopped after 50 syntax errors in one file; the first ones are the most useful.",
    ),
    "FD022": CodeInfo(
        "a name must not be dotted here",
        "Parameters, results, local values, tables and labels have plain names. Only ops and "
        "facts (`env.tp_size`) are dotted.",
        "let a.b = 3",
    ),
    "FD023": CodeInfo(
        "a literal of another language",
        "Literals are `true`, `false` and `none`, in lower case.",
        "let X = True",
    ),
    "FD024": CodeInfo(
        "a statement without effect",
        "A statement gives a name to a value. Only a call may stand alone: an op with an effect "
        "and no results.",
        "rule r(x: D[T]) { match { y == f(x) } replace { y = g(x) } }",
    ),
    "FD025": CodeInfo(
        "not a number of sites",
        "A contract gives the number of sites that a graph shows, exactly: a gain that goes "
        "unnoticed hides the next loss.",
        'expect r >= 3 in graph "decoder.txt"',
    ),
    "FD030": CodeInfo(
        "the file is not YAML",
        "The file could not be read as YAML. The message is the YAML reader's.",
    ),
    "FD031": CodeInfo(
        "YAML feature not allowed",
        "Anchors, aliases, tags, merge keys, directives and several documents in one file are not "
        "part of rule files: they hide where text comes from, and aliases can grow without bound.",
        "rules: &a [*a]",
    ),
    "FD032": CodeInfo(
        "key given twice",
        "YAML would silently keep one of the two; a rule file says everything once.",
    ),
    "FD033": CodeInfo(
        "unknown key",
        "Only the keys of the language may stand here; see `docs/language.md` or the JSON Schema.",
        "rule: []",
    ),
    "FD034": CodeInfo(
        "wrong kind of YAML value",
        "This key takes another kind of value: a mapping, a list, or text.",
        "rules: 3",
    ),
}
