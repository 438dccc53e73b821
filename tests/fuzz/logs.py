"""Logs, traces and pasted text, changed: what is in them is found without running any of it."""

from __future__ import annotations

from functools import cache
from random import Random

from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.graphs import read
from tests.fuzz.case import Case, Target
from tests.fuzz.dumps import CALLS, NASTY, check_refusal
from tests.fuzz.mutate import LARGEST, changed, encoded, noise
from tests.fuzz.texts import CASES


@cache
def printed() -> tuple[str, ...]:
    """Of each file a stretch that holds where something begins."""
    texts = [path.read_text() for path in sorted((CASES / "dumps").glob("*.txt"))]
    return tuple(_stretch(text) for text in texts)


def _stretch(text: str) -> str:
    if len(text) <= LARGEST:
        return text
    lines = text.splitlines(keepends=True)
    marks = ("def forward", "graph():", "async_compile", "__guard")
    start = next((i for i, line in enumerate(lines) if any(m in line for m in marks)), 0)
    head = lines[max(0, start - 4) : start + 16]
    return "".join(head) + lines[-1]


def _make(rng: Random) -> Case:
    text = rng.choice(printed())
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = rng.choice(_CHANGES)(text, rng)
    data = encoded(text)
    return Case(noise(data, rng) if rng.random() < 0.05 else data, ".txt")


def _parts(text: str, rng: Random) -> str:
    return changed(text, rng, printed(), NASTY if rng.random() < 0.7 else CALLS + _MARKS)


def _cut(text: str, rng: Random) -> str:
    start, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    return (
        text[start:]
        if rng.random() < 0.2
        else text[:end]
        if rng.random() < 0.7
        else text[start:end]
    )


def _prefixed(text: str, rng: Random) -> str:
    prefix = rng.choice(_PREFIXES)
    odd = rng.random() < 0.3
    return "".join(
        line if odd and rng.random() < 0.2 else prefix + line
        for line in text.splitlines(keepends=True)
    )


def _mixed(text: str, rng: Random) -> str:
    """Lines of two writers, in turns."""
    one, other = (
        _prefixed(t, rng).splitlines(keepends=True) for t in (text, rng.choice(printed()))
    )
    lines = []
    while one or other:
        lines.append((one if one and (not other or rng.random() < 0.5) else other).pop(0))
    return "".join(lines)


def _wrapped(text: str, rng: Random) -> str:
    width = rng.choice((64, 80, 120))
    return "\n".join(
        line[start : start + width]
        for line in text.split("\n")
        for start in range(0, max(1, len(line)), width)
    )


def _twice(text: str, rng: Random) -> str:
    return text + rng.choice(("", "\n", "\n```\n", "\nAfter:\n")) + rng.choice(printed())


_CHANGES = (_parts, _parts, _cut, _prefixed, _mixed, _wrapped, _twice)
_PREFIXES = (
    "> ", "\t", " ", "#   ", "[rank3]: ", "(EngineCore_0 pid=312) ", "\x1b[31m",
    "V1130 05:04:37.375000 12491 torch/_inductor/compile_fx.py:1382] [0/0] [__post_grad_graphs] ",
    "[2023-11-20 15:52:39,416] [0/0] torch._inductor.compile_fx.__post_grad_graphs: [INFO] ",
    "2025-01-31T08:00:00.1234567Z ", "INFO: ",
)  # fmt: skip
_MARKS = (
    "graph():", "%x : [num_users=1] = ", "call_function[target=os.system](args = ", '"""', "...",
    "# Graph fragment:", "…", "```", " ===== X =====", "class <lambda>(torch.nn.Module):",
    "def forward(self",
    "# File: a:1 in b, code: c", "\x1b[0m", "\x1b]0;", "{" * 50, '{"has_payload": 1}', "return %x",
    "fx_pytree.tree_flatten_spec(", "pytree.tree_unflatten(", "[[target=", "](http://x)]", "\t\t",
    "x = a.b.default(", "x = torch.ops.a.b.c(", "kwargs = {a: b, c}", "\\x1b[1m" * 20,
)  # fmt: skip


def _check(case: Case) -> str:
    try:
        text = case.data.decode()
    except UnicodeDecodeError:
        return "refused"
    if "\n" not in text or text.startswith('{"format"'):
        return "refused"
    try:
        graphs = read(text)
    except FusionError as error:
        check_refusal(error, is_json=False)
        return "refused"
    lines = text.count("\n") + 1
    outcome = "read"
    for graph in graphs:
        first, last = graph.lines
        assert 1 <= first <= last <= lines
        try:
            graph.gm.graph.lint()
        except FusionError as error:
            check_refusal(error, is_json=False)
            _check_lines(error, lines)
            outcome = "faulty"
    return outcome


def _check_lines(error: FusionError, lines: int) -> None:
    for item in error.diagnostics:
        assert item.span is not None
        assert 1 <= item.span.line <= lines, item


LOGS = Target("logs", _make, _check, 3, frozenset({"read", "refused", "faulty"}))
