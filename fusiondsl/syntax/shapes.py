"""What a YAML rule file may hold, as data: read by `yaml_reader`, printed as the JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the language, read by start rule `start` of the grammar."""

    start: str
    doc: str


@dataclass(frozen=True, slots=True)
class Word:
    """A name."""

    dotted: bool = False


@dataclass(frozen=True, slots=True)
class Prose:
    """Text that is taken as it is."""


@dataclass(frozen=True, slots=True)
class Flag:
    """`true` or `false`."""


@dataclass(frozen=True, slots=True)
class ListOf:
    item: Kind


@dataclass(frozen=True, slots=True)
class MapOf:
    """Names to values, in order."""

    value: Kind
    dotted: bool = False


@dataclass(frozen=True, slots=True)
class Either:
    """The first option whose YAML kind (text, list, mapping) is that of the node."""

    options: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    kind: Kind
    doc: str
    required: bool = False
    binds: bool = False
    """What it defines are values in the texts of the keys that follow."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A mapping with fixed keys, read in this order."""

    name: str
    keys: tuple[Key, ...]
    rest: Kind | None = None
    """What any other key holds; None: there are no others."""


Kind: TypeAlias = Text | Word | Prose | Flag | ListOf | MapOf | Either | Shape

EXPRESSION = Text("expression_text", "an expression")
VALUE = Text("value", "an expression; quoted YAML text is a string")
STATEMENTS = Text("statements_text", "statements, one a line: `q, scale = op(x, eps)`")
TYPE = Text("type_text", "a type: `D[tokens.., H]`, `float`, `int[]`; `?` makes it optional")
PARAM = Text(
    "param_text",
    "a type, after `out`, `inout` or `token` and before `= default` where wanted; "
    "a leading `*` makes the parameter keyword-only",
)
CONDITION = Text("condition_text", "a condition")
DIFFERENCE = Text("difference_text", "a named difference: `reduce_order`, or `round: value`")
IMPL = Text("impl_text", '`"module:function"(arguments) -> (results)`')
EFFECT = Text("effect_text", "`resource(arguments)`")
UNREAD = Text("unread_text", "`parameter when condition`")

COUNT = Text("count_text", "a whole number, not negative")

CONDITIONS = Either((MapOf(EXPRESSION), ListOf(Either((CONDITION, MapOf(EXPRESSION)))), CONDITION))
DIFFERENCES = ListOf(Either((DIFFERENCE, MapOf(Word()))))
NAMES = Either((Word(dotted=True), ListOf(Word(dotted=True))))

FORM = Shape(
    "form",
    (
        Key("name", Word(), "what the form is called", required=True),
        Key("body", STATEMENTS, "the equation, over the parameters of the op", required=True),
        Key("where", CONDITIONS, "when the form is this op"),
        Key("differs", DIFFERENCES, "how the form differs from `means`"),
    ),
)
IMPLEMENTATION = Shape(
    "impl",
    (
        Key("call", IMPL, "the Python function or torch op, and its arguments", required=True),
        Key("when", EXPRESSION, "when it is used"),
    ),
)
OP = Shape(
    "op",
    (
        Key("name", Word(dotted=True), "the name of the op", required=True),
        Key("doc", Prose(), "what the op does"),
        Key("extern", Flag(), "an existing torch op, declared with a snapshot of its schema"),
        Key("params", MapOf(PARAM), "the parameters, in order", binds=True),
        Key("results", Either((TYPE, MapOf(TYPE))), "the results, in order; one may be unnamed"),
        Key("means", STATEMENTS, "what the op computes"),
        Key("axiom", Flag(), "the meaning is a Python reference"),
        Key("forms", ListOf(FORM), "spellings of the op in real graphs"),
        Key("where", CONDITIONS, "what arguments must fulfil"),
        Key("available", CONDITIONS, "where the op exists"),
        Key("impls", ListOf(IMPLEMENTATION), "what runs, first match first"),
        Key("effects", ListOf(EFFECT), "calls that name one resource stay in order"),
        Key("unread", ListOf(UNREAD), "arguments that nothing depends on, and when"),
        Key("differs", DIFFERENCES, "how the kernel may differ from `means`"),
    ),
)
EXAMPLE = Shape(
    "example",
    (
        Key("fires", Flag(), "whether the rule fires", required=True),
        Key("because", Word(), "label of the condition that refuses"),
    ),
    rest=VALUE,
)
RULE = Shape(
    "rule",
    (
        Key("name", Word(dotted=True), "the name of the rule", required=True),
        Key("doc", Prose(), "what the rule does"),
        Key("inputs", MapOf(PARAM), "the inputs, in order", binds=True),
        Key("lets", MapOf(EXPRESSION), "named values of this rule"),
        Key("match", STATEMENTS, "what is looked for", binds=True),
        Key("replace", STATEMENTS, "what takes its place"),
        Key("where", CONDITIONS, "when; labels name the conditions in reports"),
        Key("allow", DIFFERENCES, "differences that are accepted"),
        Key("before", NAMES, "rules this one goes before"),
        Key("after", NAMES, "rules this one goes after"),
        Key("examples", ListOf(EXAMPLE), "sizes and facts, and whether the rule fires"),
    ),
)
FUSE = Shape(
    "fuse",
    (
        Key("target", Word(dotted=True), "the op whose meaning is looked for", required=True),
        Key("name", Word(dotted=True), "the name of the rule, if not that of the target"),
        Key("doc", Prose(), "what the rule does"),
        Key(
            "given",
            Either((Word(), ListOf(Word()))),
            "parameters with a default or `?` that the rule reads",
        ),
        Key("fixed", MapOf(EXPRESSION), "parameters of the target that have one value"),
        Key("lets", MapOf(EXPRESSION), "named values of this rule"),
        Key("where", CONDITIONS, "when; labels name the conditions in reports"),
        Key("allow", DIFFERENCES, "differences that are accepted"),
        Key("keep", NAMES, "values inside that others may read"),
        Key("before", NAMES, "rules this one goes before"),
        Key("after", NAMES, "rules this one goes after"),
        Key("examples", ListOf(EXAMPLE), "sizes and facts, and whether the rule fires"),
    ),
)
TABLE = Shape(
    "table",
    (
        Key("params", ListOf(Word()), "the parameters", required=True),
        Key("rows", ListOf(ListOf(EXPRESSION)), "keys and then the value", required=True),
    ),
)
EXPECT = Shape(
    "contract",
    (
        Key("rule", Word(dotted=True), "the rule whose sites are counted", required=True),
        Key("sites", COUNT, "how many fire or are fused already", required=True),
        Key("graph", Prose(), "the file, relative to this one; `#3` is its third", required=True),
    ),
    rest=VALUE,
)
MODULE = Shape(
    "file",
    (
        Key("imports", ListOf(Prose()), "files whose declarations are used"),
        Key("lets", MapOf(EXPRESSION), "named values"),
        Key("dtypes", MapOf(ListOf(Word())), "named sets of dtypes"),
        Key("tables", MapOf(TABLE), "tables, called like functions"),
        Key("predicates", MapOf(MapOf(PARAM), dotted=True), "predicates that integrations answer"),
        Key("ops", ListOf(OP), "op declarations"),
        Key("rules", ListOf(RULE), "rules"),
        Key("fuse", ListOf(FUSE), "rules made from what their targets mean"),
        Key("expect", ListOf(EXPECT), "how many sites of rules graphs must show"),
    ),
)
