"""Artifacts: faithful, the same everywhere, and refused when anything about them is wrong."""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusiondsl import __version__, artifact, ir
from fusiondsl.artifact import format
from fusiondsl.artifact.kinds import classes, kinds, layout
from fusiondsl.artifact.pack import json_line, pack
from fusiondsl.artifact.plain import MAX_DEPTH, Damaged, encode
from fusiondsl.artifact.unpack import unpack
from fusiondsl.diagnostics import FusionError, Source, Span
from fusiondsl.dims import expr
from fusiondsl.proof import Level, Prover
from fusiondsl.resources import patterns_root
from fusiondsl.target import Target

st.register_type_strategy(Span, st.none())
# NaN is equal to nothing, so no round trip of it can be seen
st.register_type_strategy(float, st.floats(allow_nan=False))

SOURCE = Source("rules/norms.fuse", "rule a {\n  match { y = op(x) }\n}\n")
TARGET = Target("gfx950", 8, "tp:0", {"model.hidden_size": 4096, "env.aiter": True})


def _program(names: tuple[str, ...] = ("is", "ops.norm")) -> ir.Program:
    x = ir.Param("x", ir.TensorType("D", (expr.Spread("t"), expr.Name("H"))))
    condition = ir.Condition(
        "aligned",
        expr.Binary("==", expr.Name("H", span=Span(SOURCE, 0, 4)), expr.Literal(0)),
        Span(SOURCE, 13, 18),
    )
    call = ir.Call("ops.norm", (ir.Ref("x"), ir.Const(1.0)), ("y", None), Span(SOURCE, 19, 20))
    rule = ir.Rule(
        name="a",
        params=(x,),
        match=(call,),
        replace=(),
        outputs=(("y", "y"),),
        kept=(),
        where=(condition,),
        allow=(ir.Difference("round", "y"),),
        before=(),
        after=(),
        examples=(ir.Example((("D", ir.DType("bf16")), ("H", 7)), True, None),),
        types=(("y", x.type),),
        order=3,
        span=Span(SOURCE, 5, 6),
    )
    ops = {name: _op(name, x) for name in sorted(names)}
    return ir.Program(
        ops=ops,
        rules=(rule,),
        tables={"is": ir.Table("is", ("k",), (ir.TableRow((expr.Wildcard(),), expr.Literal(1)),))},
        lets={"is": ir.Const(1), "at": ir.Const(True), "f": ir.Const(1.0)},
        dtype_sets={"half": ("bf16", "f16")},
        files=("rules/norms.fuse",),
    )


def _op(name: str, x: ir.Param) -> ir.OpDecl:
    means = ir.Branch(
        expr.Call("f", (expr.Name("x"),), (expr.Keyword("k", expr.Literal(None)),)),
        (ir.Call("prim.neg", (ir.Unrounded("x"),), ("y",)),),
        (),
    )
    return ir.OpDecl(
        name, False, "default", (x, ir.Param("k", ir.ScalarType("float"))),
        (ir.Result("y", x.type), ir.Result("z", x.type)), (means,), False, (), (), (), (),
        (ir.Effect("communicator", (expr.Name("g"),)),), (),
    )  # fmt: skip


PROGRAM = _program()
DATA = artifact.dumps(PROGRAM, TARGET)


def _by_name(mapping: dict[str, ir.Const]) -> dict[str, ir.Const]:
    return dict(sorted(mapping.items()))


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    st.one_of(
        st.from_type(ir.Call),
        st.from_type(ir.Branch),
        st.from_type(ir.Param),
        st.from_type(ir.Impl),
        st.from_type(ir.Example),
        st.builds(
            partial(ir.Program, {}, (), {}, dtype_sets={}),
            st.dictionaries(st.text(), st.from_type(ir.Const)).map(_by_name),
        ),
    )
)
def test_every_value_comes_back(value: object) -> None:
    back = unpack(pack(encode(value)))
    assert back == value
    assert repr(back) == repr(value)  # equality does not tell 1 from 1.0 and true


def test_round_trip() -> None:
    loaded = artifact.loads(DATA)
    assert loaded.program == PROGRAM
    assert loaded.target == TARGET
    assert loaded.program.rules[0].order == 3
    assert type(loaded.program.lets["at"].value) is bool
    assert artifact.dumps(loaded.program, loaded.target) == DATA


def test_positions_survive_without_the_text() -> None:
    rule = artifact.loads(DATA).program.rules[0]
    assert str(rule.span) == "rules/norms.fuse:1:6"
    assert str(rule.where[0].span) == "rules/norms.fuse:2:5"
    assert str(rule.match[0].span) == "rules/norms.fuse:2:11"
    condition = rule.where[0].expr
    assert isinstance(condition, expr.Binary)
    assert condition.left.span is None


def test_it_does_not_depend_on_order_or_hash_seed() -> None:
    assert artifact.dumps(_program(("ops.norm", "is")), TARGET) == DATA
    program = (
        "import sys; sys.path[:] = sys.argv[1:]\n"
        "from tests.artifact.test_artifact import DATA; print(DATA.hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, *sys.path],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {DATA.hex() + "\n"}


def test_it_does_not_depend_on_where_the_files_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for place in (tmp_path / "a", tmp_path / "b"):
        (place / "rules").mkdir(parents=True)
        monkeypatch.chdir(place)
        source = Source(str(place / "rules" / "norms.fuse"), SOURCE.text)
        rule = replace(PROGRAM.rules[0], span=Span(source, 5, 6))
        program = replace(PROGRAM, rules=(rule,), files=(source.name, str(patterns_root() / "x")))
        texts.append(artifact.dumps(program, TARGET))
    assert texts[0] == texts[1]
    loaded = artifact.loads(texts[0]).program
    assert loaded.files == ("rules/norms.fuse", "fusiondsl:x")
    assert str(loaded.rules[0].span) == "rules/norms.fuse:1:6"


def test_files_elsewhere_have_no_place_on_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    texts = set()
    for root in ("/home/a/rules", "/srv/packs/b"):
        files = (f"{root}/norms.fuse", f"{root}/ops/norms.fuse")
        source = Source(files[1], SOURCE.text)
        rule = replace(PROGRAM.rules[0], span=Span(source, 5, 6))
        texts.add(artifact.dumps(replace(PROGRAM, rules=(rule,), files=files), TARGET))
    (text,) = texts
    loaded = artifact.loads(text).program
    assert loaded.files == ("norms.fuse", "ops/norms.fuse")
    assert str(loaded.rules[0].span) == "ops/norms.fuse:1:6"


def test_the_digest_is_of_the_content() -> None:
    first = artifact.loads(DATA).digest
    other = artifact.loads(artifact.dumps(PROGRAM, Target("gfx942"))).digest
    assert len(first) == 64
    assert first != other


def test_the_identity_is_blind_to_positions() -> None:
    moved = replace(PROGRAM.rules[0], span=None, where=(), order=3)
    same = replace(moved, where=PROGRAM.rules[0].where)
    whole = artifact.identity(PROGRAM, TARGET)
    assert len(whole) == 32
    assert artifact.identity(replace(PROGRAM, rules=(same,), files=("x",)), TARGET) == whole
    assert artifact.identity(artifact.loads(DATA).program, TARGET) == whole
    assert artifact.identity(replace(PROGRAM, rules=(moved,)), TARGET) != whole
    assert artifact.identity(PROGRAM, Target("gfx942")) != whole


def test_loading_imports_neither_parser_nor_torch(tmp_path: Path) -> None:
    artifact.save(tmp_path / "a.fused", PROGRAM, TARGET)
    program = (
        "import sys; sys.path[:] = sys.argv[2:]\n"
        "from fusiondsl import artifact; artifact.load(sys.argv[1])\n"
        "print([m for m in ('lark', 'yaml', 'torch') if m in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.fused"), *sys.path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- what is refused ---------------------------------------------------------------------------


def _refused(data: bytes) -> tuple[str, str]:
    with pytest.raises(FusionError) as caught:
        _ = artifact.loads(data, "a.fused").program
    assert caught.value.exit_code == 2
    (diagnostic,) = caught.value.diagnostics
    return diagnostic.code, diagnostic.message


def _sealed(body: bytes, **header: object) -> bytes:
    """A body with the header that belongs to it, as someone who changes an artifact would do."""
    head = {
        "format": artifact.FORMAT,
        "version": artifact.VERSION,
        "layout": layout(),
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        **header,
    }
    return json.dumps(head).encode() + b"\n" + body


@pytest.mark.parametrize("cut", [0, 1, 40, len(DATA) // 2, len(DATA) - 2])
def test_a_truncated_file_is_refused(cut: int) -> None:
    code, _ = _refused(DATA[:cut])
    assert code in ("FD641", "FD642")


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.integers(0, len(DATA) - 2), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_in_the_writers_name(at: int, change: int) -> None:
    changed = DATA[:at] + bytes([DATA[at] ^ change]) + DATA[at + 1 :]
    try:
        loaded = artifact.loads(changed)
    except FusionError as error:
        found = error.diagnostics[0].code
    else:
        found = "FD642" if loaded.program != PROGRAM or at > DATA.index(b"\n") else "writer"
    assert found in ("FD641", "FD642", "FD643", "writer")


def test_messages() -> None:
    assert _refused(b"") == ("FD641", "`a.fused` is not an artifact of fusiondsl")
    assert _refused(b"[1]\n") == ("FD641", "`a.fused` is not an artifact of fusiondsl")
    assert _refused(b" " * 2_000 + DATA) == ("FD641", "`a.fused` is not an artifact of fusiondsl")
    assert _refused(_sealed(b"{}", bytes=3)) == (
        "FD642",
        "`a.fused` is damaged: 2 bytes where 3 were written",
    )
    assert _refused(_sealed(b"{}", sha256="0")) == (
        "FD642",
        "`a.fused` is damaged: its checksum differs",
    )


@pytest.mark.parametrize("other", [{"version": 4}, {"version": 6}, {"layout": "0123456789abcdef"}])
def test_another_version_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(FusionError) as caught:
        artifact.loads(_sealed(b"{}", writer="9.9", **other), "a.fused")
    (diagnostic,) = caught.value.diagnostics
    found = {"version": artifact.VERSION, "layout": layout()} | other
    assert diagnostic.code == "FD643"
    assert diagnostic.message == (
        f"`a.fused` has format version {found['version']} ({found['layout']}), and this is "
        f"fusiondsl {__version__}, which reads version {artifact.VERSION} ({layout()})"
    )
    assert diagnostic.help == (
        "fusiondsl 9.9 wrote it: compile the rules again, or use that version"
    )


def test_what_is_too_large_is_neither_read_nor_written(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(DATA) + format._MAX_HEADER
    monkeypatch.setattr(format, "MAX_BYTES", size)
    assert artifact.loads(DATA).program == PROGRAM
    code, message = _refused(DATA + b" " * size)
    assert (code, message) == ("FD641", "`a.fused` is larger than 0 MiB, as no artifact is")
    monkeypatch.setattr(format, "MAX_BYTES", format._MAX_HEADER)
    with pytest.raises(FusionError, match=r"FD645: the rules need [0-9,]+ bytes, and an artifact"):
        artifact.dumps(PROGRAM, TARGET)


_, _TARGET_LINE, _LENGTH, _REST = DATA.split(b"\n", 3)
_PACKED, _ASIDE = _REST[: int(_LENGTH)], _REST[int(_LENGTH) :]


def _content(
    target: object = None,
    packed: bytes = _PACKED,
    aside: bytes = _ASIDE,
    length: object = None,
) -> bytes:
    line = _TARGET_LINE if target is None else json.dumps(target).encode()
    size = json.dumps(len(packed) if length is None else length).encode()
    return _sealed(b"\n".join((line, size, packed + aside)))


def _target(**changes: object) -> bytes:
    return _content({**json.loads(_TARGET_LINE), **changes})


Block = tuple[int, ...]
"""Kind, number of values, lengths of what is open, cells."""


def _packed(scalars: object, *blocks: Block) -> bytes:
    numbers = [number for block in blocks for number in block]
    return json.dumps(scalars).encode() + b"\n" + struct.pack(f"<{len(numbers)}I", *numbers)


def _program_of(scalars: object, *blocks: Block) -> bytes:
    return _content(packed=_packed(scalars, *blocks))


def _kind(cls: type) -> int:
    return classes()[cls].number


def _of(cls: type, field: str, part: type = tuple) -> int:
    """The kind of the tuples or mappings in a field."""
    (column,) = (column for column in classes()[cls].columns if column.name == field)
    return column.kinds[part].number


REF, CONST, NAME, UNARY, LIST_OF = map(_kind, (ir.Ref, ir.Const, expr.Name, expr.Unary, ir.ListOf))
CALL_OF, SPAN = _kind(expr.Call), _kind(Span)
OPERANDS, ARGS = _of(ir.ListOf, "items"), _of(expr.Call, "args")
KWARGS, BINDINGS = _of(expr.Call, "kwargs"), _of(ir.Example, "bindings")
(PAIR,) = (kind.number for kind in kinds()[BINDINGS].columns[0].kinds.values())
LETS = _of(ir.Program, "lets", dict)


def _nested(depth: int) -> bytes:
    """A minus of a minus of a minus."""
    name = (NAME, 1, 0)
    return _packed(["x", "-"], name, *((UNARY, 1, 1, 2 + i) for i in range(depth)))


def _doubling(times: int) -> list[Block]:
    """A list of two lists of two lists: few numbers, many parts."""
    made: list[Block] = [(REF, 1, 0)]
    for place in range(1, 2 * times, 2):
        made += (OPERANDS, 1, 2, place, place), (LIST_OF, 1, place + 1)
    return made


def _crowd(width: int, readers: int) -> bytes:
    """One long list that many calls are given: few numbers, each looked through many times."""
    wide = (OPERANDS, 1, width, *[1] * width)
    return _packed(["x"], (REF, 1, 0), wide, *[(LIST_OF, 1, 2)] * readers)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_sealed(b"{"), None),
        (_sealed(b"[]"), "the target is not complete"),
        (_sealed(b"{}"), "the target is not complete"),
        (_sealed(b"[" * 100_000), "nested too deeply"),
        (_sealed(b"9" * 5_000), None),
        (_sealed(b"\xff\xfe"), None),
        (_content(packed=b""), None),
        (_program_of(1), "there are no values"),
        (_program_of([]), "there are no values"),
        (_program_of([1]), "it holds no program"),
        (_program_of([{}]), "a value is an object or a list"),
        (_program_of([[1]]), "a value is an object or a list"),
        (_content(packed=_packed(["x"], (REF, 1, 0))[:-1]), "it ends inside a number"),
        (_program_of(["x"], (REF,)), "it ends inside a block"),
        (_program_of(["x"], (REF, 1)), "it ends inside a block"),
        (_program_of(["x"], (REF, 1 << 31, 0)), "it ends inside a block"),
        (_program_of(["x"], (PAIR, 1, 0)), "it ends inside a block"),
        (_program_of(["x"], (OPERANDS, 2, 0)), "it ends inside a block"),
        (_program_of(["x"], (OPERANDS, 1, 1)), "it ends inside a block"),
        (_program_of(["x"], (OPERANDS, 1, (1 << 32) - 1, 0)), "it ends inside a block"),
        (_program_of(["x"], (REF, 0)), "a block has no values, or many of nothing"),
        (_program_of(["x"], (OPERANDS, 0)), "a block has no values, or many of nothing"),
        (
            _program_of(["x"], (_kind(ir.Anything), 1 << 31)),
            "a block has no values, or many of nothing",
        ),
        (_program_of(["x"], (REF, 1, 1)), "a value stands before its parts"),
        (_program_of(["x"], (REF, 2, 0, 1)), "a value stands before its parts"),
        (_program_of(["x"], (REF, 1, (1 << 32) - 1)), "a value stands before its parts"),
        (_program_of(["x"], (len(kinds()), 1, 0)), "a value is of an unknown kind"),
        (
            _program_of(["x"], (CONST, 1, 0), (LETS, 1, 1, 1, 1)),
            "dict.name has a value of the wrong kind",
        ),
        (_program_of(["x"], (LETS, 1, 1, 0, 0)), "dict.value has a value of the wrong kind"),
        (
            _program_of(["x"], (CONST, 1, 0), (LETS, 1, 2, 0, 1, 0, 1)),
            "a mapping has a name twice",
        ),
        (_program_of([True], (REF, 1, 0)), "Ref.name has a value of the wrong kind"),
        (_program_of(["x", 1], (REF, 2, 0, 1)), "Ref.name has a value of the wrong kind"),
        (_program_of(["-"], (UNARY, 1, 0, 0)), "Unary.operand has a value of the wrong kind"),
        (
            _program_of(["x"], (REF, 1, 0), (CONST, 1, 1)),
            "Const.value has a value of the wrong kind",
        ),
        (
            _program_of(["x", 1], (OPERANDS, 2, 1, 1, 0, 1)),
            "tuple.item has a value of the wrong kind",
        ),
        (_program_of([1], (PAIR, 1, 0, 0)), "tuple.item has a value of the wrong kind"),
        (
            _program_of(["x"], (PAIR, 1, 0, 0), (ARGS, 1, 1, 1)),
            "tuple.item has a value of the wrong kind",
        ),
        (
            _program_of(["x"], (ARGS, 1, 0), (LIST_OF, 1, 1)),
            "ListOf.items has a value of the wrong kind",
        ),
        (
            _program_of(["f"], (ARGS, 1, 0), (KWARGS, 1, 0), (CALL_OF, 2, 0, 1, 2, 0, 2, 1)),
            "Call.args has a value of the wrong kind",
        ),
        (_program_of(["f"], (SPAN, 1, 0, 1)), "it ends inside a block"),
        (_program_of(["f"], (SPAN, 1, 0, 0, 1)), "a position is not a file, a line and a column"),
        (_program_of(["f"], (SPAN, 1, 0, 1, 0)), "a position is not a file, a line and a column"),
        (_program_of([7], (SPAN, 1, 0, 1, 1)), "a position is not a file, a line and a column"),
        (_program_of(["f"], (SPAN, 1, 1, 1, 1)), "a value stands before its parts"),
        (_content(packed=_nested(MAX_DEPTH)), "nested too deeply"),
        (_content(packed=_nested(5_000)), "nested too deeply"),
        (_program_of(["x"], *_doubling(60)), "it has more than 16,777,216 parts"),
        (
            _content(packed=_crowd(1 << 16, 20_000)),
            "its values stand for more than a program has",
        ),
        *[
            (_content(length=length), "it does not say how long the program is")
            for length in (-1, len(_REST) + 1, True, 1.0, "1")
        ],
        (_content(length=len(_PACKED) - 1), "it ends inside a number"),
        (_content(length=len(_PACKED) - 4), "it ends inside a block"),
        (_content(target=3), "the target is not complete"),
        (_target(arch=3), "target.arch has a value of the wrong kind"),
        (_target(tp_size=True), "target.tp_size has a value of the wrong kind"),
        (_target(facts={"env.new": 1}), "unknown target fact 'env.new'"),
        (_target(facts={"env.mx": []}), "env.mx has a value of the wrong kind"),
        (_target(facts={"env.mx": 1}), "env.mx has a value of the wrong kind"),
    ],
)
def test_a_sealed_lie_is_refused(data: bytes, reason: str | None) -> None:
    code, message = _refused(data)
    assert code == "FD642"
    assert message.startswith("`a.fused` is damaged: ")
    assert reason is None or message == f"`a.fused` is damaged: {reason}"


LOST = ir.Call("prim.neg", (ir.Ref("w"),), ("y",))


@pytest.mark.parametrize(
    ("aside", "reason"),
    [
        (b"", None),
        (_ASIDE[:-1], "it ends inside a number"),
        (_ASIDE[:-4], "it ends inside a block"),
        (_packed(["x"], (REF, 1, 0)), "its examples are not those of its rules"),
        (pack(encode(ir.Aside({}, {"b": ()}))), "its examples are not those of its rules"),
        (pack(encode(ir.Aside({}, {"a": ()}))), "its meanings are not those of its ops"),
        (
            pack(encode(ir.Aside({"is": (), "ops.norm": (LOST,)}, {"a": ()}))),
            "op ops.norm reads 'w', which nothing binds",
        ),
    ],
)
def test_a_lie_about_what_is_read_later_is_refused_at_the_first_look(
    aside: bytes, reason: str | None
) -> None:
    program = artifact.loads(_content(aside=aside), "a.fused").program
    looks: list[Callable[[], object]] = [
        lambda: len(program.ops["is"].means or ()),
        lambda: list(program.rules[0].examples),
        lambda: artifact.dumps(program, TARGET),
    ]
    for look in (*looks, *looks):
        with pytest.raises(FusionError) as caught:
            look()
        assert caught.value.exit_code == 2
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.code == "FD642"
        assert reason is None or diagnostic.message == f"`a.fused` is damaged: {reason}"


def test_what_only_proofs_and_tests_look_at_is_read_later() -> None:
    loaded = artifact.loads(DATA)
    again = artifact.loads(DATA)
    means, examples = loaded.program.ops["is"].means, loaded.program.rules[0].examples
    assert isinstance(means, ir.Later)
    assert means == again.program.ops["is"].means
    assert "_aside" not in vars(loaded)
    assert means != loaded.program.ops["ops.norm"].forms
    assert means == PROGRAM.ops["is"].means
    assert repr(means) == repr(PROGRAM.ops["is"].means)
    assert examples == PROGRAM.rules[0].examples
    assert pickle.loads(pickle.dumps(means)) == PROGRAM.ops["is"].means
    assert hash(means) == hash(PROGRAM.ops["is"].means)


def _rule(**changes: object) -> bytes:
    rule = replace(PROGRAM.rules[0], **changes)  # type: ignore[arg-type]
    return artifact.dumps(replace(PROGRAM, rules=(rule,)), TARGET)


CALL = PROGRAM.rules[0].match[0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_rule(match=(replace(CALL, op="os.system"),)), "calls 'os.system', which is no op"),
        (_rule(match=(replace(CALL, op="prim.x"),)), "calls 'prim.x', which is no op"),
        (
            _rule(match=(replace(CALL, args=()),)),
            "calls 'ops.norm' with other arguments or results",
        ),
        (
            _rule(match=(replace(CALL, results=("y",) * 3),)),
            "calls 'ops.norm' with other arguments or results",
        ),
        (
            _rule(match=(replace(CALL, args=(ir.Ref("x"), ir.ListOf((ir.Ref("q"),)))),)),
            "reads 'q', which nothing binds",
        ),
        (_rule(kept=("q",)), "reads 'q', which nothing binds"),
        (_rule(outputs=(("y", "q"),)), "reads 'q', which nothing binds"),
    ],
)
def test_what_does_not_go_together_is_refused(data: bytes, reason: str) -> None:
    assert _refused(data) == ("FD642", f"`a.fused` is damaged: rule a {reason}")


def test_a_rule_whose_input_has_no_size_is_not_proved() -> None:
    x = ir.Param("x", ir.TensorType("D", (expr.Literal(None),)))
    loaded = artifact.loads(_rule(params=(x,))).program
    verdict = Prover(loaded).rule(loaded.rules[0])
    assert verdict.level is Level.UNPROVED
    assert str(verdict) == "not proved, because a size that is not known"


def test_what_is_deep_is_still_read_and_what_is_deeper_not_written() -> None:
    deepest = unpack(_nested(MAX_DEPTH - 1))
    assert unpack(pack(encode(deepest))) == deepest
    rule = PROGRAM.rules[0]
    where = (ir.Condition(None, expr.Unary("-", deepest)),)  # type: ignore[arg-type]
    with pytest.raises(FusionError, match=rf"FD645: the rules nest more than {MAX_DEPTH} deep"):
        artifact.dumps(replace(PROGRAM, rules=(replace(rule, where=where),)), TARGET)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.data())
def test_a_changed_number_makes_another_program_or_is_refused(data: st.DataObject) -> None:
    line, _, table = _PACKED.partition(b"\n")
    numbers = list(struct.unpack(f"<{len(table) // 4}I", table))
    at = data.draw(st.integers(0, len(numbers) - 1))
    numbers[at] = data.draw(st.one_of(st.integers(0, len(numbers)), st.just((1 << 32) - 1)))
    _comes_back_or_is_refused(line, numbers)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.data())
def test_a_changed_scalar_makes_another_program_or_is_refused(data: st.DataObject) -> None:
    line, _, table = _PACKED.partition(b"\n")
    scalars = json.loads(line)
    at = data.draw(st.integers(0, len(scalars) - 1))
    scalars[at] = data.draw(st.sampled_from([None, True, 1.5, "x", 1 << 70, {}, [0]]))
    numbers = list(struct.unpack(f"<{len(table) // 4}I", table))
    _comes_back_or_is_refused(json_line(scalars)[:-1], numbers)


def _comes_back_or_is_refused(line: bytes, numbers: list[int]) -> None:
    try:
        loaded = unpack(line + b"\n" + struct.pack(f"<{len(numbers)}I", *numbers))
    except Damaged:
        return
    assert unpack(pack(encode(loaded))) == loaded


def test_positions_need_no_memory() -> None:
    far = (1 << 32) - 1
    cells = [cell for _ in range(10_000) for cell in (0, far, far)]
    tracemalloc.start()
    span = unpack(_packed(["f"], (SPAN, 10_000, *cells)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert str(span) == f"f:{far}:{far}"
    assert peak < 10_000_000


# --- files -------------------------------------------------------------------------------------


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "pack.fused"
    path.write_text("old")
    path.chmod(0o640)
    artifact.save(path, PROGRAM, TARGET)
    assert artifact.load(path).program == PROGRAM
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["pack.fused"]
    assert artifact.is_artifact(path)
    assert not artifact.is_artifact("pack.fuse")


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pack.fused"
    path.write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FusionError, match=r"FD644: cannot write `.*`: No space left on device"):
        artifact.save(path, PROGRAM, TARGET)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["pack.fused"]


def test_links_are_followed_and_devices_written_to(tmp_path: Path) -> None:
    (tmp_path / "real.fused").write_text("old")
    (tmp_path / "link.fused").symlink_to(tmp_path / "real.fused")
    artifact.save(tmp_path / "link.fused", PROGRAM, TARGET)
    assert (tmp_path / "link.fused").is_symlink()
    assert artifact.load(tmp_path / "real.fused").program == PROGRAM
    (tmp_path / "null").symlink_to("/dev/null")
    artifact.save(tmp_path / "null", PROGRAM, TARGET)
    assert Path("/dev/null").is_char_device()
    with pytest.raises(FusionError, match=r"FD644: cannot write `.*`: Is a directory"):
        artifact.save(tmp_path, PROGRAM, TARGET)


@pytest.mark.parametrize(
    ("name", "reason"), [("missing", "No such file or directory"), (".", "Is a directory")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(FusionError, match=rf"FD640: cannot read `.*`: {reason}"):
        artifact.load(tmp_path / name)


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FusionError, match=r"FD644: cannot write `.*`: No such file or directory"):
        artifact.save(tmp_path / "nowhere" / "a.fused", PROGRAM, TARGET)


def test_only_programs_have_a_plain_form() -> None:
    with pytest.raises(TypeError, match="object has no plain form"):
        encode(object())
