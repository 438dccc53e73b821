"""Defines declared extern ops that this process lacks, from their schema snapshots.

For reading and rewriting graphs of a library that is not installed. Such an op has a schema and a
fake, and no kernel. Importing the real library afterwards fails, since torch refuses to define an
op twice: that is why this only happens on request.
"""

from __future__ import annotations

import torch

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.graphs.targets import registered
from fusiondsl.ir.program import OpDecl, Program
from fusiondsl.ops.context import Context
from fusiondsl.ops.fake import fake_function
from fusiondsl.ops.schema import schema_text

# Namespaces of torch itself: an op that is missing there belongs to another version of torch.
_TORCH = frozenset({"aten", "prim", "prims", "quantized", "higher_order", "_c10d_functional"})
_ENVIRONMENT = 4

# A definition lives as long as its Library object.
_libraries: dict[str, torch.library.Library] = {}


def define_missing(program: Program) -> tuple[str, ...]:
    """Defines every extern op of `program` that does not exist; existing ones are never touched.

    Returns the names of the new ops. Raises `FusionError` where torch refuses a schema.
    """
    diagnostics = Diagnostics()
    context = Context.of(program)
    missing = [decl for decl in program.ops.values() if decl.extern and _is_missing(decl)]
    defined = [_qualified(decl) for decl in missing if _define(decl, context, diagnostics)]
    if diagnostics.has_errors:
        raise FusionError(diagnostics, _ENVIRONMENT)
    return tuple(defined)


def _is_missing(decl: OpDecl) -> bool:
    if decl.torch_name.partition("::")[0] in _TORCH:
        return False
    return registered(decl.torch_name, decl.overload or "default") is None


def _qualified(decl: OpDecl) -> str:
    plain = decl.overload in ("", "default")
    return decl.torch_name if plain else f"{decl.torch_name}.{decl.overload}"


def _define(decl: OpDecl, context: Context, diagnostics: Diagnostics) -> bool:
    namespace = decl.torch_name.partition("::")[0]
    if namespace not in _libraries:
        _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
    library = _libraries[namespace]
    name, _, signature = schema_text(decl).partition("(")
    _, _, wanted = _qualified(decl).partition("::")
    try:
        library.define(f"{wanted}({signature}", tags=(torch.Tag.pt2_compliant_tag,))
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        diagnostics.error("FD630", f"cannot define `{name}`: {reason}", decl.span)
        return False
    torch.library.register_fake(_qualified(decl), fake_function(decl, context), lib=library)
    return True
