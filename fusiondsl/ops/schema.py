"""The torch schema of a declaration.

An arch-dependent default (`quant_dtype: dtype = fp8`) is no constant of the schema, so such an
argument is required there. The schema language wants every positional argument before a required
one to be required too, so those lose their defaults as well; the compiler always passes them.
"""

from __future__ import annotations

import math

from fusiondsl.decl.dtypes import DTYPES, FP8
from fusiondsl.dims.expr import DType
from fusiondsl.ir.program import Const, ListOf, OpDecl, Operand, Param, ScalarType, TensorType
from fusiondsl.ops.layers import SCHEMA_TYPE

_SCALARS = {
    "int": "SymInt",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "dtype": "ScalarType",
    "layer": SCHEMA_TYPE,
}


def schema_text(decl: OpDecl) -> str:
    """`name(Tensor x, SymInt n=3, *, bool b=True) -> (Tensor, Tensor)`, without the namespace."""
    name = decl.torch_name.partition("::")[2]
    positional = [p for p in decl.params if not p.keyword_only]
    keyword_only = [p for p in decl.params if p.keyword_only]
    first_default = _first_default(positional)
    written = [_param(decl, p, i >= first_default) for i, p in enumerate(positional)]
    if keyword_only:
        written.append("*")
        written.extend(_param(decl, p, True) for p in keyword_only)
    return f"{name}({', '.join(written)}) -> {_returns(decl)}"


def schema_order(decl: OpDecl) -> tuple[Param, ...]:
    """The parameters in the order the dispatcher passes them: keyword-only ones last."""
    keyword_only = [p for p in decl.params if p.keyword_only]
    if not keyword_only:
        return decl.params
    return (*[p for p in decl.params if not p.keyword_only], *keyword_only)


def _first_default(params: list[Param]) -> int:
    """The first position from which on every parameter has a default the schema can say."""
    first = len(params)
    while first > 0 and _default(params[first - 1]) is not None:
        first -= 1
    return first


def _param(decl: OpDecl, param: Param, with_default: bool) -> str:
    text = f"{_type(decl, param)} {param.name}"
    default = _default(param) if with_default else None
    return text if default is None else f"{text}={default}"


def _type(decl: OpDecl, param: Param) -> str:
    kind = param.type
    if isinstance(kind, ScalarType):
        text = _SCALARS[kind.kind] + ("[]" if kind.is_list else "")
        return text + ("?" if kind.optional else "")
    alias = ""
    if param.kind in ("out", "inout"):
        mutated = [p for p in decl.params if p.kind in ("out", "inout")]
        alias = f"(a{mutated.index(param)}!)"
    return f"Tensor{alias}" + ("?" if kind.optional else "")


def _returns(decl: OpDecl) -> str:
    kinds = [_result(r.type) for r in decl.results]
    return kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})"


def _result(kind: TensorType | ScalarType) -> str:
    if isinstance(kind, TensorType):
        return "Tensor?" if kind.optional else "Tensor"
    return _SCALARS[kind.kind]


def _default(param: Param) -> str | None:
    """The default as the schema writes it, None where there is none or none can be written."""
    if param.default is None:
        return None
    if isinstance(param.default, ListOf):
        return _list_default(param.type, param.default)
    return _const(param.default)


def _list_default(kind: TensorType | ScalarType, default: ListOf) -> str | None:
    # The schema parser knows defaults of int and float lists only.
    if not isinstance(kind, ScalarType) or kind.kind not in ("int", "float"):
        return None
    items = [_item(item) for item in default.items]
    return None if None in items else f"[{', '.join(str(item) for item in items)}]"


def _item(operand: Operand) -> str | None:
    return _const(operand) if isinstance(operand, Const) else None


def _const(const: Const) -> str | None:
    value = const.value
    if isinstance(value, DType):
        return None if value.name == FP8 else DTYPES[value.name][0]
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return repr(value)
