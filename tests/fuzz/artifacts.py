"""Artifacts: damaged, cut, and changed by someone who sealed them again."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import fusiondsl
from fusiondsl import Target as Device
from fusiondsl import artifact, ir
from fusiondsl.artifact.kinds import kinds
from fusiondsl.diagnostics.codes import CODES
from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.proof import Prover
from tests.fuzz.case import Case, Target
from tests.fuzz.mutate import changed, encoded, noise

CASES = Path(__file__).parents[1] / "cases"
_DEVICES = (
    Device(),
    Device("gfx950", 8, "tp:0", {"model.hidden_size": 4096, "env.aiter": True}),
    Device("gfx942", 2),
)
_UNREADABLE = 2


@cache
def originals() -> tuple[bytes, ...]:
    """Artifacts of small programs, and one with shipped rules."""
    made = []
    for number, text in enumerate(_programs()):
        program = fusiondsl.load_source(text).program
        made.append(artifact.dumps(program, _DEVICES[number % len(_DEVICES)]))
    shipped = fusiondsl.load("fusiondsl:rocm_aiter/rms_norm_quant.fuse").program
    return (*made, artifact.dumps(shipped, _DEVICES[1]))


def _programs() -> list[str]:
    lab = (CASES / "engine" / "lab.fuse").read_text()
    return [lab + _RULES, _SMALL, "let A = 1\n"]


_RULES = """
rule pair(a: D[t..], b: D[t..]) {
  match { done = lab.act(a); s = b + done }
  replace { done, s = lab.act_sum(a, b) }
}
rule codes(x: D[t.., H], w: D[H], eps: float) {
  match { n = lab.norm(x, w, eps); q, s = lab.group_codes(n, 32) }
  replace { q, s = lab.norm_codes(x, w, eps, 32) }
  where { even: H % 64 == 0 }
  allow { round }
  example { t = 7, H = 64, D = f32 } fires
}
"""
_SMALL = """
dtypes half = (bf16, f16)
let EIGHT = 4 + 4
table least(arch) {
  (gfx942) = 16
  (_) = EIGHT
}
extern op aten.glu(self: D[t.., 2 * N], dim: int = -1) -> D[t.., N]
op silly(x: D[t.., N], by: float = 1.5, flag: bool? = none) -> (y: D[t.., N]) {
  means {
    case flag is none { y = x * by } else { y = (x.to(f32) + by).to(D) }
  }
  form twice { y = x * by } where { by > 0.0 }
}
rule gated(x: D[t.., 2 * N]) {
  match { y = x[.., :N] * sigmoid(x[.., N:]) }
  replace { y = aten.glu(x) }
  where {
    dtypes: D in half
    vectors: N % EIGHT == 0
    N >= least(env.arch)
  }
  allow { round }
}
"""


def _make(rng: Random) -> Case:
    data = rng.choice(originals())
    kind = rng.randrange(10)
    if kind == 0:
        data = noise(data, rng)
    elif kind == 1:
        data = data[: rng.randrange(len(data))]
    elif kind == 2:
        head, _, body = data.partition(b"\n")
        data = encoded(changed(head.decode(), rng, (head.decode(),))) + b"\n" + body
    elif kind == 3:
        data = _sealed(data, noise(data.partition(b"\n")[2], rng))
    else:
        data = _sealed(data, _rewritten(data, rng))
    return Case(data, ".fused")


def _sealed(data: bytes, body: bytes) -> bytes:
    """Another body under the header of `data`, which then agrees with it."""
    header = json.loads(data.partition(b"\n")[0])
    header |= {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(header).encode() + b"\n" + body


def _rewritten(data: bytes, rng: Random) -> bytes:
    """The target, a scalar or the table of numbers becomes another."""
    _, first, length, rest = data.split(b"\n", 3)
    parts = [rest[: int(length)], rest[int(length) :]]
    which = rng.choice((0, 0, 0, 1))
    line, _, table = parts[which].partition(b"\n")
    target, scalars = json.loads(first), json.loads(line)
    numbers = list(struct.unpack(f"<{len(table) // 4}I", table))
    for _ in range(rng.choice((1, 1, 2, 5))):
        match rng.randrange(10):
            case 0:
                _change_target(target, rng)
            case 1 | 2 | 3:
                _change_scalars(scalars, rng)
            case _:
                _change_numbers(numbers, len(scalars), rng)
    packed = struct.pack(f"<{len(numbers)}I", *numbers)
    parts[which] = json.dumps(scalars).encode() + b"\n" + packed
    size = len(parts[0]) + rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, -4, 1))
    return b"\n".join((json.dumps(target).encode(), str(size).encode(), b"".join(parts)))


_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**100, -0.0, 0.5, 1e308, float("inf"),
    float("nan"), "", "x", "y", "D", "t", "N", "bf16", "f32", "any", "prim.neg", "lab.norm",
    "os.system", "__class__", "\x00", "é" * 10, "a" * 5_000, "env.arch", "default", [], {}, [0],
    [[0]],
)  # fmt: skip


def _change_target(target: dict[str, Any], rng: Random) -> None:
    key = rng.choice(sorted(target))
    if rng.random() < 0.2:
        del target[key]
    elif key == "facts" and rng.random() < 0.5:
        target[key] = {rng.choice(("env.mx", "env.new", "model.hidden_size")): rng.choice(_VALUES)}
    elif key == "answers" and rng.random() < 0.7:
        answer = {"predicate": rng.choice(_VALUES), "value": True, "args": rng.choice(_VALUES)}
        target[key] = [answer]
    else:
        target[key] = rng.choice(_VALUES)


def _change_scalars(scalars: list[Any], rng: Random) -> None:
    """A scalar becomes another; most stay of their kind."""
    if not scalars:
        return
    at = rng.randrange(len(scalars))
    same = [other for other in scalars if type(other) is type(scalars[at])]
    match rng.randrange(6):
        case 0:
            scalars[at] = rng.choice(_VALUES)
        case 1:
            del scalars[at]
        case 2:
            scalars.insert(at, rng.choice(_VALUES))
        case _:
            scalars[at] = rng.choice(same)


def _change_numbers(numbers: list[int], places: int, rng: Random) -> None:
    """A cell or the head of a block becomes another; most cells stay places of what is made."""
    blocks = list(_blocks(numbers))
    if not blocks:
        return
    head, cells, width = rng.choice(blocks)
    at = rng.choice(cells if cells and rng.random() < 0.9 else head)
    same = [numbers[cell] for cell in cells[(at - cells.start) % width :: width]] if width else []
    match rng.randrange(8):
        case 0:
            numbers[at] = rng.choice((0, 1, len(kinds()), 2**31, 2**32 - 1))
        case 1:
            del numbers[at]
        case 2:
            numbers.insert(at, numbers[at])
        case 3:
            numbers[at] = min(max(0, numbers[at] + rng.choice((-1, 1))), 2**32 - 1)
        case 4:
            numbers[at] = rng.randrange(max(places, 1))
        case _:
            numbers[at] = rng.choice(same or [numbers[at]])


def _blocks(numbers: list[int]) -> Iterator[tuple[range, range, int]]:
    """Heads, cells and width of the blocks, as far as they follow each other."""
    at = 0
    while at + 2 <= len(numbers) and numbers[at] < len(kinds()):
        kind, count = kinds()[numbers[at]], numbers[at + 1]
        start = at + 2 + (count if kind.is_open else 0)
        rows = sum(numbers[at + 2 : start]) if kind.is_open else count
        end = start + rows * len(kind.columns)
        if end > len(numbers):
            return
        yield range(at, start), range(start, end), len(kind.columns)
        at = end


# --- what must hold ------------------------------------------------------------------------------


def _check_refusal(error: FusionError) -> None:
    assert error.exit_code == _UNREADABLE
    (only,) = error.diagnostics
    assert only.code in CODES
    assert only.message.startswith("`fuzzed.fused` "), only.message


def check_artifact(case: Case) -> str:
    try:
        loaded = artifact.loads(case.data, "fuzzed.fused")
        program = loaded.program
        written = artifact.dumps(program, loaded.target)
    except FusionError as error:
        _check_refusal(error)
        return "refused"
    assert isinstance(program, ir.Program)
    again = artifact.loads(written)
    assert artifact.dumps(again.program, again.target) == written
    artifact.dump_python(program, loaded.target)
    prover = Prover(program)
    for rule in program.rules:
        str(prover.rule(rule))
    if all(op.extern for op in program.ops.values()):  # our own are registered once a process
        CompiledRules(program, loaded.target).rows()
    return "loaded"


ARTIFACT = Target("artifact", _make, check_artifact, 3, frozenset({"refused", "loaded"}))
