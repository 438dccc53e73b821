"""The tensors and arguments of a common graph, once every name has a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fusiondsl.analysis.concrete import (
    Tensor,
    call_results,
    leading_name,
    primitive_result,
    tensor,
)
from fusiondsl.analysis.local_names import SCALARS, LocalNames
from fusiondsl.analysis.overlay import Overlay
from fusiondsl.analysis.side import opaque_scalars
from fusiondsl.analysis.world import NotConcrete, World
from fusiondsl.dims.dim import Dim
from fusiondsl.dims.evaluate import evaluate
from fusiondsl.dims.expr import DType, Literal, Spread
from fusiondsl.dims.facts import NO_FACTS
from fusiondsl.dims.values import Invalid, Unknown, Value
from fusiondsl.ir.program import (
    Anything,
    Call,
    Computed,
    Const,
    ListOf,
    Operand,
    Program,
    Ref,
    ScalarType,
    TensorType,
)


def value_name(overlay: Overlay, where: str, name: str) -> str:
    """One name for each value of the common graph."""
    if where == "left":
        return name
    return overlay.back.get(name, f"right:{name}")


def as_number(value: Value) -> Any:
    return value.as_int() if isinstance(value, Dim) else value


class CommonGraph:
    """Tensors and arguments of every step, for one assignment."""

    def __init__(
        self,
        overlay: Overlay,
        program: Program,
        sides: tuple[LocalNames, LocalNames],
        world: World,
        scope: Mapping[str, Value],
    ) -> None:
        self.overlay = overlay
        self.program = program
        self.sides = dict(zip(("left", "right"), sides, strict=True))
        self.world = world
        self.scope = scope
        self.tensors: dict[str, Tensor] = {}
        self.arguments: dict[tuple[str, int], tuple[Any, ...]] = {}

    def build(self) -> None:
        for where in ("left", "right"):
            self._inputs(where)
        for where, index in self.overlay.steps or ():
            self._step(where, index)
        for where in ("left", "right"):
            self._check_params(where)
            self._replace(where)

    def _params(self, where: str) -> Iterator[tuple[str, TensorType]]:
        names_ = self.sides[where]
        for param in names_.side.rule.params:
            if isinstance(param.type, TensorType):
                yield param.name, names_.types[param.name]

    def _inputs(self, where: str) -> None:
        """Tensors that no call makes."""
        other = self.overlay.right if where == "left" else self.overlay.left
        partners = self.overlay.values if where == "left" else self.overlay.back
        for name, kind in self._params(where):
            key = value_name(self.overlay, where, name)
            if key not in self.tensors and partners.get(name) not in other.producer:
                self.tensors[key] = tensor(
                    self._narrowed(where, name, kind), self.scope, self.world
                )

    def _narrowed(self, where: str, name: str, kind: TensorType) -> TensorType:
        """With the dtype that both rules accept, where one of them leaves it open."""
        other = "right" if where == "left" else "left"
        partners = self.overlay.values if where == "left" else self.overlay.back
        partner = self.sides[other].types.get(partners.get(name, ""))
        mine = self.world.dtypes(kind.dtype, self.scope)
        theirs = None if partner is None else self.world.dtypes(partner.dtype, self.scope)
        both = [d for d in mine or theirs or ("f32",) if theirs is None or d in theirs]
        if not both:
            raise NotConcrete
        return TensorType(both[0], kind.dims, kind.strides, kind.optional)

    def _step(self, where: str, index: int) -> None:
        call = self.sides[where].side.calls[index]
        args = tuple(self._argument(where, arg) for arg in call.args)
        shared = self.overlay.shared.get(index) if where == "left" else None
        if shared is not None:
            others = self.overlay.right.calls[shared].args
            args = tuple(
                self._argument("right", o) if isinstance(a, Anything) else a
                for a, o in zip(args, others, strict=True)
            )
        args = tuple(
            self._default(call, i) if isinstance(a, Anything) else a for i, a in enumerate(args)
        )
        self.arguments[where, index] = args
        results = self._results(call, args)
        for name, found in zip(call.results, results, strict=True):
            if name is not None:
                self.tensors[value_name(self.overlay, where, name)] = found

    def _results(self, call: Call, args: Sequence[Any]) -> list[Tensor]:
        known = [self._known(arg) for arg in args]
        decl = self.program.ops.get(call.op)
        if decl is not None:
            return call_results(decl, known, self.world)
        return [primitive_result(call.op.removeprefix("prim."), known)]

    def _known(self, arg: Any) -> Any:
        if isinstance(arg, Ref):
            return self.tensors[arg.name]
        return [self._known(item) for item in arg] if isinstance(arg, list) else arg

    def _argument(self, where: str, operand: Operand) -> Any:
        """A `Ref` to a value of the common graph, a list, a scalar, or `Anything`."""
        match operand:
            case Ref():
                return Ref(value_name(self.overlay, where, operand.name))
            case ListOf():
                return [part for item in operand.items for part in self._items(where, item)]
            case Anything():
                return operand
        expr = self.sides[where].scalar(operand)
        assert expr is not None
        found = evaluate(
            expr, {**self.world.constants, **self.scope}, NO_FACTS, self.world.functions
        )
        value = as_number(found)
        if value is None and not (isinstance(expr, Literal) and expr.value is None):
            raise NotConcrete
        if isinstance(found, Unknown | Invalid):
            raise NotConcrete
        if isinstance(value, DType):
            (dtype,) = self.world.dtypes(value.name, {}) or (None,)
            if dtype is None:
                raise NotConcrete
            return DType(dtype)
        return list(value) if isinstance(value, tuple) else value

    def _items(self, where: str, operand: Operand) -> list[Any]:
        """One item of a list; leading sizes of a shape are several."""
        if isinstance(operand, Computed) and isinstance(operand.expr, Spread):
            spread = self.sides[where].marked(operand.expr.name)
            leading = self.scope.get(leading_name(spread))
            if not isinstance(leading, tuple):
                raise NotConcrete
            return list(leading)
        return [self._argument(where, operand)]

    def _default(self, call: Call, index: int) -> Any:
        decl = self.program.ops.get(call.op)
        param = None if decl is None else decl.call_params[index]
        if param is None or not isinstance(param.type, ScalarType):
            raise NotConcrete
        if isinstance(param.default, Const):
            return param.default.value
        if param.type.kind not in SCALARS or param.type.is_list:
            raise NotConcrete
        return SCALARS[param.type.kind][0]

    # --- does it fit both rules? -----------------------------------------------------------------

    def _check_params(self, where: str) -> None:
        for name, kind in self._params(where):
            found = self.tensors[value_name(self.overlay, where, name)]
            allowed = self.world.dtypes(kind.dtype, self.scope)
            if allowed is not None and found.dtype not in allowed:
                raise NotConcrete
            wanted = tensor(
                TensorType(found.dtype, kind.dims, kind.strides), self.scope, self.world
            )
            if wanted.shape != found.shape:
                raise NotConcrete

    def _replace(self, where: str) -> None:
        """The new calls of a rule accept what they get, and results are as they were."""
        names_ = self.sides[where]
        rule = names_.side.rule
        known = dict(self.tensors)
        try:
            for call in rule.replace:
                args = []
                for operand in opaque_scalars(call, rule).args:
                    args.append(self._replaced_value(where, operand, known))
                for name, found in zip(
                    call.results, self._replaced_results(call, args), strict=True
                ):
                    if name is not None:
                        known[f"new:{where}:{name}"] = found
        except KeyError:
            raise NotConcrete from None
        relaid = {a.value for a in rule.allow if a.kind == "relayout"}
        for matched, written in rule.outputs:
            old = self.tensors.get(value_name(self.overlay, where, matched))
            new = known.get(f"new:{where}:{written}")
            if old is None or new is None or old == new:
                continue
            moved = not relaid.isdisjoint({None, matched})
            if not moved or (old.dtype, old.shape) != (new.dtype, new.shape):
                raise NotConcrete

    def _replaced_results(self, call: Call, args: Sequence[Any]) -> list[Tensor]:
        decl = self.program.ops.get(call.op)
        if decl is not None:
            return call_results(decl, args, self.world)
        return [primitive_result(call.op.removeprefix("prim."), args)]

    def _replaced_value(self, where: str, operand: Operand, known: Mapping[str, Tensor]) -> Any:
        if isinstance(operand, Ref):
            new = known.get(f"new:{where}:{operand.name}")
            return new if new is not None else known[value_name(self.overlay, where, operand.name)]
        if isinstance(operand, ListOf):
            return [self._replaced_value(where, item, known) for item in operand.items]
        return self._argument(where, operand)
