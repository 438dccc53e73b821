"""Call targets by their printed names: ops, higher-order ops, operators, torch functions."""

from __future__ import annotations

import keyword
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch._higher_order_ops.auto_functionalize  # registers the higher-order ops
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from fusiondsl.graphs.namespaces import is_namespace
from fusiondsl.graphs.opaque import OpaqueOp

Target = Callable[..., Any]

PREFIX: dict[str, Target] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
INFIX: dict[str, Target] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
INPLACE: dict[str, Target] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "**=": operator.ipow,
    "@=": operator.imatmul,
    "&=": operator.iand,
    "|=": operator.ior,
    "^=": operator.ixor,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
    "setitem": operator.setitem,
}
_OPERATORS = {f"_operator.{f.__name__}": f for f in (*PREFIX.values(), *INFIX.values())}
_OPERATORS.update({f"_operator.{f.__name__}": f for f in INPLACE.values()})
_OPERATORS["_operator.getitem"] = operator.getitem
_BUILTINS: dict[str, Target] = {
    "getattr": getattr,
    "abs": abs,
    "round": round,
    "sum": sum,
    "len": len,
}
_MODULES = {
    "torch": torch,
    "torch.nn.functional": torch.nn.functional,
    "torch._C._nn": torch._C._nn,
    "math": math,
}


def resolve(name: str) -> Target | None:
    """The function FX prints as `name`; an `OpaqueOp` for an op this process lacks.

    None where `name` is no function at all. Only tables are looked up: naming a function in a
    text imports nothing and calls nothing.
    """
    name = name.replace("operator.", "_operator.").replace("__operator.", "_operator.")
    if name in _OPERATORS:
        return _OPERATORS[name]
    if name in _BUILTINS:
        return _BUILTINS[name]
    parts = name.split(".")
    # FX writes names into code that it compiles.
    if any(not part.isidentifier() or keyword.iskeyword(part) for part in parts):
        return None
    if parts[:2] == ["torch", "ops"]:
        return _op(parts[2:], name) if 4 <= len(parts) <= 5 else None
    if any(part.startswith("__") for part in parts):
        return None
    if parts[:2] == ["torch", "_higher_order_ops"]:
        return _op(["higher_order", parts[-1]], name)
    if parts[0] == "torch":
        return _function(name) or OpaqueOp(name)
    return _function(name)


def resolve_short(parts: tuple[str, ...]) -> Target | None:
    """An op without its `torch.ops.`, as people shorten it: `vllm_ir.rms_norm.default`."""
    if not 2 <= len(parts) <= 3 or any(not part.isidentifier() for part in parts):
        return None
    if parts[-1] != "default" and not is_namespace(parts[0]):
        return None
    return resolve(".".join(("torch", "ops", *parts)))


def _op(parts: list[str], name: str) -> Target | None:
    namespace, op = parts[:2]
    found: Target | None
    if namespace == "higher_order":
        hop = getattr(torch.ops.higher_order, op, None)
        found = hop if isinstance(hop, HigherOrderOperator) else None
    else:
        found = registered(f"{namespace}::{op}", parts[2] if len(parts) > 2 else None)
    if found is not None:
        return found
    # `torch.ops` has methods of its own, and every object has dunder ones: those are no ops.
    reserved = hasattr(type(torch.ops), namespace) or any(p.startswith("__") for p in parts)
    return None if reserved else OpaqueOp(name)


def registered(qualified: str, overload: str | None) -> OpOverload | OpOverloadPacket | None:
    """The op of this process, without creating a namespace or packet for one that is missing."""
    schemas = torch._C._jit_get_schemas_for_operator(qualified)
    wanted = "" if overload == "default" else overload
    if not any(overload is None or schema.overload_name == wanted for schema in schemas):
        return None
    namespace, _, op = qualified.partition("::")
    packet = getattr(getattr(torch.ops, namespace), op, None)
    if not isinstance(packet, OpOverloadPacket) or overload is None:
        return packet if isinstance(packet, OpOverloadPacket) else None
    found = getattr(packet, overload, None)
    return found if isinstance(found, OpOverload) else None


def _function(name: str) -> Target | None:
    module, _, last = name.rpartition(".")
    if module not in _MODULES or last.startswith("__"):
        return None
    found = _MODULES[module].__dict__.get(last)
    if not callable(found) or isinstance(found, type):
        return None
    return found if module != "torch" or _computes(last, found) else None


def _computes(name: str, function: Target) -> bool:
    """Whether a function of module `torch` works on tensors; `torch.load` and the like do not."""
    if hasattr(torch._C._VariableFunctions, name) or name.startswith("sym_"):
        return True
    return getattr(function, "__module__", None) == "torch.functional"


def name_of(target: Target) -> str:
    """The printed name, the inverse of `resolve`."""
    if isinstance(target, OpaqueOp):
        return target.name
    if isinstance(target, OpOverload):
        namespace, _, op = target._schema.name.partition("::")
        return f"torch.ops.{namespace}.{op}.{target._overloadname}"
    if isinstance(target, OpOverloadPacket):
        namespace, _, op = target._qualified_op_name.partition("::")
        return f"torch.ops.{namespace}.{op}"
    if isinstance(target, HigherOrderOperator):
        return f"torch.ops.higher_order.{target._name}"
    if _BUILTINS.get(getattr(target, "__name__", "")) is target:
        return target.__name__
    for module, namespace_ in _MODULES.items():
        if namespace_.__dict__.get(getattr(target, "__name__", "")) is target:
            return f"{module}.{target.__name__}"
    return f"{target.__module__}.{target.__name__}"
