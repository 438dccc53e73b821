"""Compiled rules as a file: versioned, deterministic, checksummed data that executes nothing.

Line one is a header (format, version, layout, length and SHA-256 of the rest), line two the target,
line three the length of the checked program, which follows; last comes what is read only when it is
looked at. Loading needs neither the parser nor the files the rules were written in, and nothing in
it depends on a version of torch: forms are equations, not traces.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn

from fusiondsl import __version__, ir
from fusiondsl.artifact.aside import attach, check_aside, split
from fusiondsl.artifact.kinds import layout
from fusiondsl.artifact.pack import json_line, pack
from fusiondsl.artifact.plain import MAX_DEPTH, Damaged, Json, TooDeep, encode
from fusiondsl.artifact.sound import check_sound
from fusiondsl.artifact.unpack import unpack
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.resources import patterns_root
from fusiondsl.target import ENV_FACTS, Answer, Fact, Target

FORMAT = "fusiondsl artifact"
VERSION = 5
SUFFIX = ".fused"
MAX_BYTES = 16 << 20
"""Of an artifact, which for the shipped rules has a hundredth of that."""

_UNREADABLE = 2
_MAX_HEADER = 1 << 10


@dataclass(frozen=True, eq=False)
class Artifact:
    """An undamaged artifact; the program is made from its data when it is first asked for."""

    name: str
    """How messages call it."""
    target: Target
    digest: str
    """SHA-256 of all that the file holds, positions of rules included."""
    _packed: bytes = field(repr=False)
    _packed_aside: bytes = field(repr=False)

    @cached_property
    def program(self) -> ir.Program:
        """Raises `FusionError` where the data is no program, though its checksum is right.

        So does a first look at a meaning or an example, which are read then.
        """
        with _damage_refused(self.name):
            program = unpack(self._packed)
            if not isinstance(program, ir.Program):
                raise Damaged("it holds no program")
            check_sound(program)
        attach(program, self._packed_aside, lambda: self._aside)
        return program

    @cached_property
    def _aside(self) -> ir.Aside:
        with _damage_refused(self.name):
            return check_aside(unpack(self._packed_aside), self.program)


def dumps(
    program: ir.Program, target: Target, file_name: Callable[[str], str] | None = None
) -> bytes:
    """The artifact as bytes, the same for the same program and target wherever it is made.

    It has the positions of rules and declarations, and none of what is inside a declaration.
    `file_name` renames their files, by default to what does not differ from machine to machine.
    """
    file_name = file_name or file_namer(program)
    program = replace(
        program,
        files=tuple(map(file_name, program.files)),
        ops={name: _unplaced(op) for name, op in program.ops.items()},
    )
    try:
        body = _body(program, target, file_name)
    except TooDeep:
        _refuse("FD645", f"the rules nest more than {MAX_DEPTH} deep")
    if len(body) > MAX_BYTES - _MAX_HEADER:
        _refuse("FD645", f"the rules need {len(body):,} bytes, and an artifact has {MAX_BYTES:,}")
    header: Json = {
        "format": FORMAT,
        "version": VERSION,
        "layout": layout(),
        "writer": __version__,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    return json_line(header) + body


def _unplaced(op: ir.OpDecl) -> ir.OpDecl:
    return replace(
        op,
        means=None if op.means is None else tuple(_steps(op.means)),
        forms=tuple(
            replace(form, body=tuple(_steps(form.body)), where=_conditions(form.where), span=None)
            for form in op.forms
        ),
        where=_conditions(op.where),
        available=_conditions(op.available),
    )


def _conditions(conditions: Iterable[ir.Condition]) -> tuple[ir.Condition, ...]:
    return tuple(replace(condition, span=None) for condition in conditions)


def _steps(body: Iterable[ir.Step]) -> Iterator[Any]:
    """The steps, without positions."""
    for step in body:
        if isinstance(step, ir.Branch):
            then, otherwise = tuple(_steps(step.then)), tuple(_steps(step.otherwise))
            yield replace(step, then=then, otherwise=otherwise)
        else:
            yield replace(step, span=None)


def identity(program: ir.Program, target: Target) -> bytes:
    """SHA-256 of what the rules do: blind to the files they stand in and to where in them."""
    return identity_for(program_identity(program), target)


def program_identity(program: ir.Program) -> bytes:
    """The part of `identity` that all targets share."""
    return hashlib.sha256(pack(encode(replace(program, files=()), None))).digest()


def identity_for(shared: bytes, target: Target) -> bytes:
    """The `identity` of a program with that part."""
    return hashlib.sha256(json_line(_target_data(target)) + shared).digest()


def _body(program: ir.Program, target: Target, file_name: Callable[[str], str] | None) -> bytes:
    main, aside = split(program)
    packed = pack(encode(main, file_name))
    head = json_line(_target_data(target)) + json_line(len(packed))
    return head + packed + pack(encode(aside, file_name))


def loads(data: bytes, name: str = "<artifact>") -> Artifact:
    """The artifact in `data`; refuses what is damaged or of another version."""
    if len(data) > MAX_BYTES:
        _refuse("FD641", f"`{name}` is larger than {MAX_BYTES >> 20} MiB, as no artifact is")
    head, _, body = data.partition(b"\n")
    digest = _checked_digest(head, body, name)
    first, _, rest = body.partition(b"\n")
    with _damage_refused(name):
        target = _target(json.loads(first))
        size, _, data = rest.partition(b"\n")
        length = json.loads(size)
        if type(length) is not int or not 0 <= length <= len(data):
            raise Damaged("it does not say how long the program is")
        return Artifact(name, target, digest, data[:length], data[length:])


@contextmanager
def _damage_refused(name: str) -> Iterator[None]:
    try:
        yield
    except (Damaged, TypeError, ValueError, RecursionError) as error:
        _refuse("FD642", f"`{name}` is damaged: {_shown(error)}")


def save(path: str | os.PathLike[str], program: ir.Program, target: Target) -> None:
    """Writes the artifact; the file is complete or, after an error, as it was before."""
    write_atomically(path, dumps(program, target))


def load(path: str | os.PathLike[str]) -> Artifact:
    name = os.fspath(path)
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        _refuse("FD640", f"cannot read `{name}`: {_reason(error)}")
    return loads(data, name)


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Does the name say that it is an artifact and not a rule file?"""
    return Path(path).suffix == SUFFIX


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """All of `data` or nothing: a reader never sees half a file.

    A link is followed, and a device or pipe (`/dev/stdout`) is written to, never replaced.
    """
    place = Path(path)
    try:
        if place.exists() and not place.is_file():
            place.write_bytes(data)
        else:
            replace_file(place.resolve(), data)
    except (OSError, ValueError) as error:
        _refuse("FD644", f"cannot write `{place}`: {_reason(error)}")


def replace_file(place: Path, data: bytes) -> None:
    """All of `data` or, with an `OSError`, nothing; permissions of an existing file are kept."""
    mode = _mode_for(place)
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode_for(place: Path) -> int:
    """The mode of the file that is replaced, else what the process gives new files."""
    if place.exists():
        return place.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


# --- header ------------------------------------------------------------------------------------


def _checked_digest(head: bytes, body: bytes, name: str) -> str:
    """The checksum of the body, where the header agrees with it."""
    try:
        header = json.loads(head) if len(head) < _MAX_HEADER else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        _refuse("FD641", f"`{name}` is not an artifact of fusiondsl")
    if (header.get("version"), header.get("layout")) != (VERSION, layout()):
        _refuse_version(header, name)
    if header.get("bytes") != len(body):
        expected = header.get("bytes")
        _refuse("FD642", f"`{name}` is damaged: {len(body)} bytes where {expected} were written")
    digest = hashlib.sha256(body).hexdigest()
    if header.get("sha256") != digest:
        _refuse("FD642", f"`{name}` is damaged: its checksum differs")
    return digest


def _refuse_version(header: dict[str, Any], name: str) -> NoReturn:
    found, own = (
        f"{str(version)[:20]} ({str(parts)[:20]})"
        for version, parts in (
            (header.get("version"), header.get("layout")),
            (VERSION, layout()),
        )
    )
    _refuse(
        "FD643",
        f"`{name}` has format version {found}, and this is fusiondsl {__version__}, which reads "
        f"version {own}",
        help=f"fusiondsl {str(header.get('writer'))[:20]} wrote it: compile the rules again, or "
        "use that version",
    )


def _refuse(code: str, message: str, help: str | None = None) -> NoReturn:
    diagnostics = Diagnostics()
    diagnostics.error(code, message, None, help=help)
    raise FusionError(diagnostics, _UNREADABLE)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _shown(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)[:200]


# --- content -----------------------------------------------------------------------------------


def file_namer(program: ir.Program) -> Callable[[str], str]:
    """Names rule files without what differs from machine to machine.

    Shipped files by their place among them, others by their place below the working directory, and
    what lies elsewhere by its place below the directory that all such files are in.
    """
    roots = ((patterns_root(), "fusiondsl:"), (Path.cwd(), ""))

    def place(file: str) -> str | None:
        for root, prefix in roots:
            if Path(file).is_relative_to(root):
                return prefix + Path(file).relative_to(root).as_posix()
        return None

    elsewhere = [file for file in program.files if Path(file).is_absolute() and not place(file)]
    common = os.path.commonpath([os.path.dirname(file) for file in elsewhere] or ["/"])  # noqa: PTH120

    @cache
    def name(file: str) -> str:
        if not Path(file).is_absolute():
            return file
        known = place(file)
        if known is not None:
            return known
        below = Path(file).is_relative_to(common) and file in elsewhere
        return Path(file).relative_to(common).as_posix() if below else Path(file).name

    return name


def _target_data(target: Target) -> Json:
    return {
        "arch": target.arch,
        "tp_size": target.tp_size,
        "tp_group": target.tp_group,
        "facts": dict(sorted(target.facts.items())),
        "answers": sorted(map(_answer_data, target.answers), key=json_line),
    }


def _answer_data(answer: Answer) -> Json:
    args: Json = None if answer.args is None else {**answer.args}
    return {"predicate": answer.predicate, "value": answer.value, "args": args}


_TARGET_TYPES: dict[str, tuple[type, ...]] = {
    "arch": (str, type(None)),
    "tp_size": (int, type(None)),
    "tp_group": (str, type(None)),
    "facts": (dict,),
    "answers": (list,),
}


def _target(data: Json) -> Target:
    if not isinstance(data, dict) or data.keys() != _TARGET_TYPES.keys():
        raise Damaged("the target is not complete")
    values: dict[str, Any] = dict(data)
    for key, kinds in _TARGET_TYPES.items():
        if type(values[key]) not in kinds:
            raise Damaged(f"target.{key} has a value of the wrong kind")
    for key, fact in values["facts"].items():
        if key not in ENV_FACTS:
            raise Damaged(f"unknown target fact {key!r}")
        if type(fact).__name__ != ENV_FACTS[key]:
            raise Damaged(f"{key} has a value of the wrong kind")
    return Target(**{**values, "answers": tuple(map(_answer, values["answers"]))})


def _answer(data: Json) -> Answer:
    if not isinstance(data, dict) or data.keys() != {"predicate", "value", "args"}:
        raise Damaged("an answer is not complete")
    predicate, value, args = data["predicate"], data["value"], data["args"]
    if not isinstance(predicate, str) or not isinstance(value, bool):
        raise Damaged("an answer has a value of the wrong kind")
    return Answer(predicate, value, None if args is None else _asked(args))


def _asked(data: Json) -> dict[str, Fact]:
    if not isinstance(data, dict):
        raise Damaged("an answer has a value of the wrong kind")
    asked: dict[str, Fact] = {}
    for name, value in data.items():
        if not isinstance(value, str | int | float):
            raise Damaged("an answer has a value of the wrong kind")
        asked[name] = value
    return asked
