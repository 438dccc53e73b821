"""Registration of declared ops as torch ops in namespace `fusiondsl`, once a process."""

from __future__ import annotations

from operator import attrgetter

import torch

from fusiondsl.diagnostics.diagnostic import Diagnostic, FusionError, Label, Severity
from fusiondsl.ir.program import OpDecl, Program
from fusiondsl.ops.context import Context
from fusiondsl.ops.dispatch import implementation
from fusiondsl.ops.fake import fake_function
from fusiondsl.ops.lookup import declared_overload, torch_overload
from fusiondsl.ops.schema import schema_text

NAMESPACE = "fusiondsl"

# A registration lives as long as its Library object.
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_declared: dict[str, OpDecl] = {}
_contexts: dict[str, Context] = {}


def register(program: Program) -> None:
    """Registers every op of the program that is not extern.

    An op that is registered already with an equal declaration is left alone; one with another
    declaration is an error, and then nothing is registered.
    """
    own = [(decl.torch_name, decl) for decl in program.ops.values() if not decl.extern]
    known = dict(_declared)
    conflicts = []
    for name, decl in own:
        earlier = known.setdefault(name, decl)
        if earlier is not decl and _identity(earlier) != _identity(decl):
            conflicts.append(_conflict(decl, earlier))
    if conflicts:
        raise FusionError(conflicts)
    context = Context.of(program)
    for name, decl in own:
        if name not in _declared:
            _define(decl, context)


def overload(decl: OpDecl | str) -> torch._ops.OpOverload | None:
    """The torch op of a declaration, or of a name (`rms_norm`, `vllm.all_reduce`).

    None where it does not exist: an op of ours that is not registered, or an extern op whose
    library has not been imported.
    """
    if isinstance(decl, OpDecl):
        return declared_overload(decl)
    own = torch_overload(f"{NAMESPACE}::{decl.replace('.', '_')}")
    return own if own is not None else _extern(decl)


def declaration(name: str) -> tuple[OpDecl, Context] | None:
    """The registered declaration of an op, by its fusiondsl or its torch name."""
    key = name if "::" in name else f"{NAMESPACE}::{name.replace('.', '_')}"
    return (_declared[key], _contexts[key]) if key in _declared else None


def _extern(name: str) -> torch._ops.OpOverload | None:
    namespace, _, rest = name.partition(".")
    if not rest:
        return None
    op, _, overload_name = rest.partition(".")
    return torch_overload(f"{namespace}::{op}", overload_name)


def _define(decl: OpDecl, context: Context) -> None:
    name = _library.define(schema_text(decl), tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, implementation(decl, context), "CompositeExplicitAutograd")
    torch.library.register_fake(decl.torch_name, fake_function(decl, context), lib=_library)
    _declared[decl.torch_name] = decl
    _contexts[decl.torch_name] = context


_identity = attrgetter(
    "name", "extern", "overload", "params", "results", "means", "axiom", "where", "impls"
)
"""What registration depends on: signature, meaning, conditions, kernels."""


def _conflict(decl: OpDecl, earlier: OpDecl) -> Diagnostic:
    labels = () if earlier.span is None else (Label(earlier.span, "registered from here"),)
    return Diagnostic(
        "FD501",
        Severity.ERROR,
        f"op `{decl.name}` and the registered op `{earlier.name}` have different declarations",
        decl.span,
        labels,
        (f"both would be the torch op `{decl.torch_name}`",),
        "rename one of them, or start a new process",
    )
