"""A common graph as the text that FX prints, for people and for the reader of graphs."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from fusiondsl.analysis.concrete import Tensor
from fusiondsl.analysis.trial import Trial
from fusiondsl.analysis.world import NotConcrete
from fusiondsl.decl.dtypes import DTYPES
from fusiondsl.decl.primitives import REDUCTIONS
from fusiondsl.diagnostics.diagnostic import Witness
from fusiondsl.dims.expr import DType
from fusiondsl.ir.program import Call, OpDecl, Program, Ref

_ATEN = "torch.ops.aten"
_INDENT = " " * 4


def witness_of(trial: Trial, program: Program) -> Witness | None:
    """The graph and the facts of its target; None where it cannot be printed."""
    text = witness_text(trial, program)
    if text is None:
        return None
    answers = {f"{name}(..)": value for name, value in trial.answers.items()}
    return Witness(text, tuple(sorted({**trial.facts, **answers}.items())))


def witness_text(trial: Trial, program: Program) -> str | None:
    """The graph as `gm.print_readable()` prints one; None where a call has no such spelling."""
    try:
        return "\n".join(_Printer(trial, program).lines())
    except NotConcrete:
        return None


class _Printer:
    def __init__(self, trial: Trial, program: Program) -> None:
        self.trial = trial
        self.program = program
        self._names: dict[str, str] = {}
        self._used: set[str] = {"self", "device", "torch", "auto_functionalized"}

    def lines(self) -> Iterator[str]:
        overlay = self.trial.overlay
        steps = overlay.steps or ()
        made = {key for step in steps for key in self._results(*step)}
        inputs = [key for key in self.trial.tensors if key not in made]
        params = [f"{self._name(key)}: {self._annotation(key)}" for key in inputs]
        yield "class GraphModule(torch.nn.Module):"
        yield f"{_INDENT}def forward(self, {', '.join(params)}):"
        for where, index in steps:
            for line in self._call(where, index):
                yield _INDENT * 2 + line
        returned = "".join(f"{self._name(key)}, " for key in overlay.outputs())
        closing = returned.rstrip() if returned.count(",") == 1 else returned.rstrip(", ")
        yield f"{_INDENT * 2}return ({closing})"

    def _results(self, where: str, index: int) -> list[str]:
        return [self._key(where, name) for name in self._source(where, index).results if name]

    def _source(self, where: str, index: int) -> Call:
        overlay = self.trial.overlay
        return (overlay.left if where == "left" else overlay.right).calls[index]

    def _key(self, where: str, name: str) -> str:
        if where == "left":
            return name
        return self.trial.overlay.back.get(name, f"right:{name}")

    # --- names and types -------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        """The name the rule gives, or the op's where it gives none."""
        known = self._names.get(key)
        if known is None:
            written = self._written(key)
            named = written.isidentifier() and not keyword.iskeyword(written)
            known = self._names[key] = self._fresh(written if named else self._makers[key])
        return known

    def _written(self, key: str) -> str:
        """Its name in the rule that makes it."""
        overlay = self.trial.overlay
        other = overlay.values.get(key)
        made = other in overlay.right.producer and key not in overlay.left.producer
        return other if made and other is not None else key.removeprefix("right:")

    @cached_property
    def _makers(self) -> dict[str, str]:
        """Of each value that a call makes, the op."""
        return {
            key: self._source(*step).op.removeprefix("prim.").rpartition(".")[2]
            for step in self.trial.overlay.steps or ()
            for key in self._results(*step)
        }

    def _fresh(self, name: str) -> str:
        number, found = 0, name
        while found in self._used:
            number += 1
            found = f"{name}_{number}"
        self._used.add(found)
        return found

    def _annotation(self, key: str) -> str:
        return _annotation(self.trial.tensors[key])

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, where: str, index: int) -> Iterator[str]:
        call = self._source(where, index)
        args = self.trial.arguments[where, index]
        results = [None if n is None else self._key(where, n) for n in call.results]
        decl = self.program.ops.get(call.op)
        if decl is None:
            key = results[0]
            assert key is not None
            text = self._primitive(call.op.removeprefix("prim."), args)
            yield f"{self._name(key)}: {self._annotation(key)} = {text}"
        elif any(p.kind in ("out", "inout", "token") for p in decl.params):
            yield from self._mutating(decl, args, results)
        else:
            yield from self._functional(decl, args, results)

    def _functional(
        self, decl: OpDecl, args: Sequence[Any], results: Sequence[str | None]
    ) -> Iterator[str]:
        positional = [
            self._value(a)
            for p, a in zip(decl.call_params, args, strict=True)
            if not p.keyword_only
        ]
        named = [
            f"{p.name} = {self._value(a)}"
            for p, a in zip(decl.call_params, args, strict=True)
            if p.keyword_only
        ]
        text = f"{_target(decl)}({', '.join([*positional, *named])})"
        if len(decl.results) == 1 and results[0] is not None:
            yield f"{self._name(results[0])}: {self._annotation(results[0])} = {text}"
            return
        node = self._fresh(decl.torch_name.partition("::")[2])
        yield f"{node} = {text}"
        yield from self._items(node, results, 0)

    def _items(self, node: str, results: Sequence[str | None], offset: int) -> Iterator[str]:
        for position, key in enumerate(results):
            if key is not None:
                yield f"{self._name(key)}: {self._annotation(key)} = {node}[{position + offset}]"

    def _mutating(
        self, decl: OpDecl, args: Sequence[Any], results: Sequence[str | None]
    ) -> Iterator[str]:
        """As the functionalised call; buffers that are only written are fresh."""
        named = dict(zip((p.name for p in decl.call_params), map(self._value, args), strict=True))
        buffers = [p for p in decl.params if p.kind in ("out", "inout")]
        written = results[len(decl.results) :]
        for param, key in zip(buffers, written, strict=True):
            if param.kind != "out":
                continue
            if key is None:
                raise NotConcrete
            buffer = self._fresh(f"{param.name}_buffer")
            kind = self.trial.tensors[key]
            options = f"dtype = torch.{DTYPES[kind.dtype][0]}, device = device(type='cpu')"
            text = f"{_ATEN}.empty.memory_format({list(kind.shape)}, {options}, pin_memory = False)"
            yield f"{buffer}: {_annotation(kind)} = {text}"
            named[param.name] = buffer
        if any(p.name not in named for p in decl.params):
            raise NotConcrete
        given = ", ".join(f"{p.name} = {named[p.name]}" for p in decl.params)
        node = self._fresh("auto_functionalized")
        hop = "torch.ops.higher_order.auto_functionalized"
        yield f"{node} = {hop}({_target(decl)}, {given})"
        offset = 0 if decl.results else 1
        yield from self._items(node, results, offset)

    # --- arguments -------------------------------------------------------------------------------

    def _value(self, arg: Any) -> str:
        if isinstance(arg, Ref):
            return self._name(arg.name)
        if isinstance(arg, list):
            return f"[{', '.join(map(self._value, arg))}]"
        if isinstance(arg, DType):
            return f"torch.{DTYPES[arg.name][0]}"
        return repr(arg)

    def _primitive(self, name: str, args: Sequence[Any]) -> str:
        special = _SPELLED.get(name)
        if special is not None:
            return special(self, *args)
        overload = _OVERLOADS.get(name, "default")
        spelled = _OTHER_NAMES.get(name, name)
        return f"{_ATEN}.{spelled}.{overload}({', '.join(map(self._value, args))})"

    def _kind(self, arg: Any) -> Tensor:
        return self.trial.tensors[arg.name]


def _annotation(kind: Tensor) -> str:
    shape, strides = (", ".join(map(str, sizes)) for sizes in (kind.shape, kind.strides))
    return f'"{kind.dtype}[{shape}][{strides}]cpu"'


def _target(decl: OpDecl) -> str:
    namespace, _, name = decl.torch_name.partition("::")
    return f"torch.ops.{namespace}.{name}.{decl.overload or 'default'}"


_OVERLOADS: Mapping[str, str] = {
    **dict.fromkeys(("add", "sub", "mul", "div"), "Tensor"),
    "pow": "Tensor_Scalar",
}
_OTHER_NAMES: Mapping[str, str] = {"round_even": "round"}


def _reduced(p: _Printer, name: str, x: Any, axis: int) -> str:
    overload = {"mean": "mean.dim", "sum": "sum.dim_IntList"}.get(name, f"{name}.default")
    return f"{_ATEN}.{overload}({p._value(x)}, [{axis}])"


def _created(p: _Printer, shape: Any, value: Any, dtype: DType) -> str:
    options = f"dtype = {p._value(dtype)}, layout = torch.strided, device = device(type='cpu')"
    return f"{_ATEN}.full.default({shape}, {value!r}, {options}, pin_memory = False)"


def _like(p: _Printer, x: Any) -> str:
    kind = p._kind(x)
    return _created(p, list(kind.shape), 0, DType(kind.dtype))


def _uninitialised(p: _Printer, shape: Any, dtype: DType) -> str:
    options = f"dtype = {p._value(dtype)}, device = device(type='cpu'), pin_memory = False"
    return f"{_ATEN}.empty.memory_format({shape}, {options})"


def _product(p: _Printer, x: Any, y: Any) -> str:
    name = "mm" if len(p._kind(x).shape) == 2 else "bmm"
    return f"{_ATEN}.{name}.default({p._value(x)}, {p._value(y)})"


_SPELLED: Mapping[str, Callable[..., str]] = {
    **{name: (lambda p, x, axis, name=name: _reduced(p, name, x, axis)) for name in REDUCTIONS},
    "square": lambda p, x: f"{_ATEN}.pow.Tensor_Scalar({p._value(x)}, 2)",
    "cast": lambda p, x, dtype: (
        f"torch.ops.prims.convert_element_type.default({p._value(x)}, {p._value(dtype)})"
    ),
    "bitcast": lambda p, x, dtype: f"{_ATEN}.view.dtype({p._value(x)}, {p._value(dtype)})",
    "view": lambda p, x, shape: f"{_ATEN}.reshape.default({p._value(x)}, {list(shape)})",
    "slice": lambda p, x, axis, start, stop: (
        f"{_ATEN}.slice.Tensor({p._value(x)}, {axis}, {start}, {stop})"
    ),
    "cat": lambda p, parts, axis: f"{_ATEN}.cat.default({p._value(parts)}, {axis})",
    "pad": lambda p, x, before, after, value: (
        f"{_ATEN}.constant_pad_nd.default({p._value(x)}, [{before}, {after}], {value!r})"
    ),
    "matmul": _product,
    "zeros": lambda p, shape, dtype: _created(p, shape, 0, dtype),
    "full": _created,
    "empty": _uninitialised,
    "zeros_like": _like,
    "empty_like": lambda p, x: _uninitialised(p, list(p._kind(x).shape), DType(p._kind(x).dtype)),
}
