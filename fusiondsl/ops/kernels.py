"""Kernels of other packages: found lazily, called and unpacked as the `impl` clause says."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

from fusiondsl.aiter.tree import is_installed as aiter_is_installed
from fusiondsl.dims.expr import Binary, Call, Expr, Literal, Method, Name, Sequence, Wildcard
from fusiondsl.dims.names import names
from fusiondsl.ir.program import Condition, Impl, OpDecl
from fusiondsl.ops.dtypes import device_arch
from fusiondsl.ops.errors import KernelContractError
from fusiondsl.ops.fake import allocate
from fusiondsl.ops.layout import relaid
from fusiondsl.ops.lookup import torch_overload
from fusiondsl.ops.scope import NotWhole, Scope, Undecided, evaluate, sizes, truth
from fusiondsl.target import ENV_FACTS, Target

_TORCH = "torch:"

_METHODS = frozenset(
    {
        "to", "float", "view", "reshape", "flatten", "contiguous", "t", "transpose", "unsqueeze",
        "squeeze", "size", "stride", "numel", "dim",
    }
)  # fmt: skip

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "zeros_like": torch.zeros_like,
    "empty_like": torch.empty_like,
    "zeros": torch.zeros,
    "empty": torch.empty,
}


@dataclass(frozen=True)
class Kernel:
    impl: Impl
    function: Callable[..., Any]


def find_kernel(decl: OpDecl, impl: Impl, scope: Scope) -> Kernel | str:
    """The kernel of one `impl`, or why it cannot serve this call."""
    known = Scope(scope.values, scope.context, _facts())
    for condition in (*decl.available, *filter(_asks_facts, decl.where)):
        if truth(condition.expr, known) is False:
            return "the declaration says it is not available on this machine"
    if impl.when is not None and _when(impl.when, known) is False:
        return "its `when` condition does not hold"
    function, reason = _locate(impl.location)
    return reason if function is None else Kernel(impl, function)


def forget_kernels() -> None:
    """Looks every kernel up again, after packages have been installed or replaced."""
    _imported.cache_clear()
    _facts.cache_clear()


def run_kernel(
    kernel: Kernel, decl: OpDecl, scope: Scope, device: torch.device
) -> dict[str, torch.Tensor | None]:
    """The op's results by name, as the kernel returned or wrote them."""
    buffers = _output_buffers(kernel.impl, decl, scope, device)
    copies = relaid(decl, scope)
    known = Scope({**scope.values, **copies, **buffers}, scope.context, _facts())
    args = [_argument(expr, known) for expr in kernel.impl.args]
    kwargs = {name: _argument(expr, known) for name, expr in kernel.impl.kwargs}
    returned = kernel.function(*args, **kwargs)
    outputs: dict[str, torch.Tensor | None] = {**_written(decl, copies), **buffers}
    outputs.update(_unpack(decl, kernel.impl.results, returned, bool(buffers)))
    return outputs


def _written(decl: OpDecl, copies: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies that stand for buffers the kernel writes: what it wrote has to go back."""
    mutated = {p.name for p in decl.params if p.kind in ("out", "inout")}
    return {name: copy for name, copy in copies.items() if name in mutated}


# --- finding -----------------------------------------------------------------------------------


@cache
def _facts() -> dict[str, Any]:
    """What conditions may ask about this process. Without a GPU there is no architecture."""
    facts: dict[str, Any] = dict(Target(arch=device_arch() or "none").known())
    facts["env.aiter"] = aiter_is_installed()
    facts["env.vllm"] = find_spec("vllm") is not None
    return facts


def _asks_facts(condition: Condition) -> bool:
    return not names(condition.expr).isdisjoint(ENV_FACTS)


def _when(expr: Expr, scope: Scope) -> bool | None:
    try:
        return truth(expr, scope)
    except NotWhole:
        return False


def _locate(location: str) -> tuple[Callable[..., Any] | None, str]:
    if location.startswith(_TORCH):
        # Not remembered: the library that defines it may be imported later.
        name, _, overload = location.removeprefix(_TORCH).partition(".")
        return torch_overload(name, overload), "no library has defined this torch op"
    return _imported(location)


@cache
def _imported(location: str) -> tuple[Callable[..., Any] | None, str]:
    module, _, path = location.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    # Importing a GPU package on a machine without its runtime raises all kinds of errors.
    except Exception as problem:
        return None, f"{type(problem).__name__}: {problem}"
    return found, ""


# --- calling -----------------------------------------------------------------------------------


def _output_buffers(
    impl: Impl, decl: OpDecl, scope: Scope, device: torch.device
) -> dict[str, torch.Tensor]:
    """Fresh buffers for results that the kernel takes as arguments."""
    written = {e.id for e in (*impl.args, *(e for _, e in impl.kwargs)) if isinstance(e, Name)}
    parameters = {p.name for p in decl.params}
    return {
        result.name: allocate(decl, result, scope, device)
        for result in decl.results
        if result.name in written - parameters
    }


def _argument(expr: Expr, scope: Scope) -> Any:
    if isinstance(expr, Literal):
        return expr.value
    if isinstance(expr, Sequence):
        return sizes(expr.items, scope)
    if isinstance(expr, Method):
        return _method(expr, scope)
    if isinstance(expr, Call) and expr.func in _FUNCTIONS:
        kwargs = {k.name: _argument(k.value, scope) for k in expr.kwargs}
        return _FUNCTIONS[expr.func](*(_argument(a, scope) for a in expr.args), **kwargs)
    if isinstance(expr, Binary) and expr.op in ("+", "-", "*"):
        left, right = _argument(expr.left, scope), _argument(expr.right, scope)
        return left + right if expr.op == "+" else left - right if expr.op == "-" else left * right
    return evaluate(expr, scope)


def _method(expr: Method, scope: Scope) -> Any:
    if expr.name not in _METHODS:
        raise Undecided(f".{expr.name}()")
    receiver = _argument(expr.receiver, scope)
    args = sizes(expr.args, scope) if expr.name in ("view", "reshape") else None
    if args is None:
        args = tuple(_argument(a, scope) for a in expr.args)
    kwargs = {k.name: _argument(k.value, scope) for k in expr.kwargs}
    return getattr(receiver, expr.name)(*args, **kwargs)


def _unpack(
    decl: OpDecl, shape: Expr | None, returned: Any, has_buffers: bool
) -> dict[str, torch.Tensor | None]:
    """Names the parts of a returned value; `shape` is a name, `_`, or a nested tuple of them."""
    if shape is not None:
        return dict(_pairs(decl, shape, returned))
    if has_buffers or not decl.results:
        return {}
    values = returned if isinstance(returned, (tuple, list)) else (returned,)
    if len(values) != len(decl.results):
        raise KernelContractError(
            f"{decl.torch_name}: the kernel returned {len(values)} values, "
            f"declared {len(decl.results)}"
        )
    return {r.name: value for r, value in zip(decl.results, values, strict=True)}


def _pairs(decl: OpDecl, shape: Expr, returned: Any) -> list[tuple[str, torch.Tensor | None]]:
    if isinstance(shape, Name):
        return [] if shape.id == "_" else [(shape.id, returned)]
    if isinstance(shape, Wildcard):
        return []
    if not isinstance(shape, Sequence):
        raise KernelContractError(f"{decl.torch_name}: the `impl` result is no name or tuple")
    if len(shape.items) == 1 and not isinstance(returned, (tuple, list)):
        return _pairs(decl, shape.items[0], returned)
    if not isinstance(returned, (tuple, list)) or len(returned) != len(shape.items):
        raise KernelContractError(
            f"{decl.torch_name}: the kernel did not return {len(shape.items)} values"
        )
    return [
        pair
        for item, value in zip(shape.items, returned, strict=True)
        for pair in _pairs(decl, item, value)
    ]
