"""Turns parsed graph text into an `fx.GraphModule` with fake values; runs nothing of it."""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Span
from fusiondsl.graphs import targets
from fusiondsl.graphs.annotations import Annotations
from fusiondsl.graphs.expressions import BadText
from fusiondsl.graphs.namespaces import is_namespace
from fusiondsl.graphs.opaque import OpaqueModule, OpaqueOp
from fusiondsl.graphs.symbols import Symbols
from fusiondsl.graphs.text import (
    Assign,
    Attribute,
    Call,
    Constant,
    Dotted,
    Expr,
    Free,
    GraphText,
    Infix,
    Inplace,
    Item,
    Listing,
    Mapping,
    Parameter,
    Prefix,
)
from fusiondsl.graphs.values import complete

_MODULES = frozenset({"builtins", "math", "operator", "os", "self", "sys", "torch"})
"""Names that are no values even where names of values may be unknown."""
_ENUM = re.compile(r"[A-Z]\w*\.[A-Z]\w*")
_FORMATS = (torch.dtype, torch.layout, torch.memory_format)


class GraphBuilder:
    """Builds one graph. `children` are the graphs of classes nested in its class."""

    def __init__(
        self,
        text: GraphText,
        device: torch.device,
        diagnostics: Diagnostics,
        children: dict[str, fx.GraphModule],
    ) -> None:
        self.text = text
        self.symbols = Symbols()
        self.uncertain: list[str] = []
        self._annotations = Annotations(self.symbols, device)
        self._diagnostics = diagnostics
        self._root = torch.nn.Module()
        self._graph = fx.Graph()
        self._env: dict[str, Any] = {}
        self._freed: set[str] = set()
        self._frees = any(isinstance(statement, Free) for statement in text.body)
        self.opaque: list[str] = []
        """Called ops that this process lacks."""
        self.uncertain.extend(text.notes)
        for name, child in children.items():
            self._root.add_module(name, child)

    def build(self) -> fx.GraphModule:
        aliases = self._aliases()
        for param in self.text.params:
            self._guarded(partial(self._placeholder, param, aliases), param.span)
        self._guarded(self._defaults_last, self.text.span)
        self._body()
        self._guarded(self._output, self.text.span)
        if self._diagnostics.has_errors:
            # Half a graph may not even compile; the caller raises.
            return fx.GraphModule({}, _empty())
        complete(self._graph, self._annotations)
        self._untyped()
        return fx.GraphModule(self._root, self._graph, self.text.path[-1])

    def _untyped(self) -> None:
        inputs = [node.name for node in self._graph.nodes if node.op == "placeholder"]
        typed = {node.name for node in self._graph.nodes if "val" in node.meta}
        missing = [name for name in inputs if name not in typed]
        if missing and not typed:
            self._note("no types are printed: sizes and dtypes are unknown")
        elif missing:
            self._note(f"inputs printed without a type: {', '.join(missing)}")

    def _defaults_last(self) -> None:
        params = self.text.params
        for before, param in pairwise(params):
            if before.default is not None and param.default is None:
                message = f"`{param.name}` needs a default, as `{before.name}` before it has one"
                raise BadText("FD605", message, param.span)

    def _body(self) -> None:
        statements = iter(self.text.body)
        for statement in statements:
            if isinstance(statement, Free):
                self._freed.update(statement.names)
            elif isinstance(statement, Inplace):
                # FX prints `x += y;  name = x`: one node, named by the second statement.
                alias = next(statements, None)
                named = alias if isinstance(alias, Assign) else None
                self._guarded(partial(self._inplace, statement, named), statement.span)
            elif isinstance(statement, Assign):
                self._guarded(partial(self._assign, statement), statement.span)

    def _guarded(self, step: Callable[[], None], span: Span) -> None:
        try:
            step()
        except BadText as fault:
            self._diagnostics.error(fault.code, fault.message, fault.span)
        except RecursionError:
            self._diagnostics.error("FD606", "nested too deeply", span)

    def _note(self, text: str) -> None:
        if text not in self.uncertain:
            self.uncertain.append(text)

    # --- nodes ---------------------------------------------------------------------------------

    def _aliases(self) -> dict[str, str]:
        """Parameters whose node has another name: `l_x_ = L_x_` at the top of the body."""
        names = {param.name for param in self.text.params}
        aliases: dict[str, str] = {}
        for statement in self.text.body:
            value = statement.value if isinstance(statement, Assign) else None
            if not isinstance(value, Dotted) or value.parts[0] not in names:
                break
            if isinstance(statement, Assign) and len(value.parts) == 1:
                aliases[value.parts[0]] = statement.name
        return aliases

    def _default(self, expr: Expr) -> Any:
        """A constant: FX makes a function of the graph, and Python evaluates its defaults."""
        value = self._value(expr)
        if value is None or isinstance(value, (bool, int, float, str, torch.device, *_FORMATS)):
            return value
        raise BadText("FD612", "a default that is no constant", expr.span)

    def _placeholder(self, param: Parameter, aliases: dict[str, str]) -> None:
        default = () if param.default is None else (self._default(param.default),)
        name = self._usable(aliases.get(param.name, param.name), param.span)
        self._usable(param.name, param.span)
        node = self._graph.create_node("placeholder", param.name, default, name=name)
        self._env[param.name] = node
        self._env[name] = node
        self._annotate(node, param.annotation)

    def _assign(self, statement: Assign) -> None:
        value = statement.value
        alias = isinstance(value, Dotted) and len(value.parts) == 1
        if alias and isinstance(value, Dotted) and self._is_value(value.parts):
            self._env[statement.name] = self._named(value)
            return
        op, target, args, kwargs = self._node(value)
        name = self._usable(statement.name, statement.span)
        node = self._graph.create_node(op, target, args, kwargs, name=name)
        self._define(node, statement)

    def _define(self, node: fx.Node, statement: Assign) -> None:
        if statement.trace is not None:
            node.meta["stack_trace"] = statement.trace
        # Even where its annotation is bad the node exists: one fault is reported, not one a use.
        self._env[statement.name] = node
        self._annotate(node, statement.annotation)

    def _usable(self, name: str, span: Span) -> str:
        if keyword.iskeyword(name):
            raise BadText("FD605", f"`{name}` is a keyword", span)
        if name == "self":
            raise BadText("FD605", "`self` is the module, not an input", span)
        return name

    def _annotate(self, node: fx.Node, annotation: Span | None) -> None:
        if annotation is None:
            return
        reading = self._annotations.read(annotation)
        if reading.value is not None:
            node.meta["val"] = reading.value
        for note in reading.assumed:
            self._note(note)

    def _inplace(self, statement: Inplace, alias: Assign | None) -> None:
        function = targets.INPLACE[statement.op]
        target = statement.target
        value = self._value(statement.value)
        args: tuple[Any, ...]
        if isinstance(target, Item):
            args = (self._value(target.receiver), self._value(target.index), value)
        else:
            args = (self._value(target), value)
        name = None if alias is None else self._usable(alias.name, alias.span)
        node = self._graph.create_node("call_function", function, args, name=name)
        if alias is not None:
            self._define(node, alias)

    def _output(self) -> None:
        if self.text.result is not None:
            self._graph.output(self._value(self.text.result))
            return
        nodes = [n for n in self._graph.nodes if n.op not in ("placeholder", "get_attr")]
        if self._frees:
            self._note("the text ends without `return`: what was never freed is the output")
            live = [node for node in nodes if node.name not in self._freed]
        else:
            self._note("the text ends without `return`: what nothing uses is the output")
            live = [node for node in nodes if not node.users]
        self._graph.output(tuple(live))

    # --- calls ---------------------------------------------------------------------------------

    def _node(self, expr: Expr) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
        match expr:
            case Item():
                args = (self._value(expr.receiver), self._value(expr.index))
                return "call_function", operator.getitem, args, {}
            case Prefix():
                function = targets.PREFIX[expr.op]
                return "call_function", function, (self._value(expr.operand),), {}
            case Infix():
                operands = (self._value(expr.left), self._value(expr.right))
                return "call_function", targets.INFIX[expr.op], operands, {}
            case Call():
                return self._call(expr)
            case Attribute():
                name = _public(expr.name, expr.span)
                return "call_function", getattr, (self._value(expr.receiver), name), {}
            case Dotted():
                return self._dotted(expr)
        raise BadText("FD612", "this is no FX node", expr.span)

    def _dotted(self, expr: Dotted) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
        if expr.parts[0] == "self" and len(expr.parts) > 1:
            path = ".".join(expr.parts[1:])
            self._module(path, OpaqueModule())
            return "get_attr", path, (), {}
        if len(expr.parts) == 2 and self._is_value(expr.parts):
            name = _public(expr.parts[1], expr.span)
            return "call_function", getattr, (self._named(expr), name), {}
        raise self._unknown(expr)

    def _call(self, expr: Call) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
        path = _module_path(expr.func)
        if path is not None:
            self._module(path, OpaqueModule())
            return "call_module", path, *self._arguments(expr)
        if isinstance(expr.func, Attribute):
            args, kwargs = self._arguments(expr)
            name = _public(expr.func.name, expr.span)
            return "call_method", name, (self._value(expr.func.receiver), *args), kwargs
        if not isinstance(expr.func, Dotted):
            raise BadText("FD612", "this is no FX node", expr.span)
        parts = expr.func.parts
        args, kwargs = self._arguments(expr)
        if len(parts) == 2 and self._is_value(parts):
            name = _public(parts[1], expr.span)
            return "call_method", name, (self._named(expr.func), *args), kwargs
        return "call_function", self._target(expr.func), args, kwargs

    def _is_value(self, parts: tuple[str, ...]) -> bool:
        """Does a dotted name start with a value of the graph?"""
        if parts[0] in self._env:
            return True
        known = parts[0] in _MODULES or is_namespace(parts[0])
        return self.text.open and not known

    def _named(self, expr: Dotted) -> Any:
        """The value a name starts with; where part of the graph is missing, an input of it."""
        name = expr.parts[0]
        if name not in self._env:
            first = next((n for n in self._graph.nodes if n.op != "placeholder"), None)
            with self._graph.inserting_before(first) if first else nullcontext():
                node = self._graph.create_node("placeholder", name, name=name)
            self._usable(name, expr.span)
            self._env[name] = node
        return self._env[name]

    def _target(self, expr: Dotted) -> targets.Target:
        target = targets.resolve(".".join(expr.parts))
        if target is None:
            target = targets.resolve_short(expr.parts)
            if target is not None:
                self._note("`torch.ops.` is left out before names of ops")
        if target is None:
            raise self._unknown(expr)
        return self._seen(target)

    def _seen(self, target: targets.Target) -> targets.Target:
        if isinstance(target, OpaqueOp) and target.name not in self.opaque:
            self.opaque.append(target.name)
        return target

    def _arguments(self, expr: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args = tuple(self._value(arg) for arg in expr.args)
        return args, {name: self._value(value) for name, value in expr.kwargs}

    def _module(self, path: str, module: torch.nn.Module) -> None:
        """Puts `module` at `path` below the root, unless something is there."""
        parent = self._root
        *outer, last = path.split(".")
        for name in outer:
            child = getattr(parent, name, None)
            if not isinstance(child, torch.nn.Module):
                child = torch.nn.Module()
                parent.add_module(name, child)
            parent = child
        if not hasattr(parent, last):
            parent.add_module(last, module)

    def _unknown(self, expr: Dotted) -> BadText:
        name = ".".join(expr.parts)
        if len(expr.parts) == 1:
            return BadText("FD611", f"`{name}` is used but not defined before", expr.span)
        return BadText("FD612", f"unknown function or constant `{name}`", expr.span)

    # --- arguments -----------------------------------------------------------------------------

    def _value(self, expr: Expr) -> Any:
        match expr:
            case Constant():
                return expr.value
            case Dotted():
                return self._name(expr)
            case Listing():
                items = [self._value(item) for item in expr.items]
                return items if expr.is_list else tuple(items)
            case Mapping():
                return {self._key(key): self._value(value) for key, value in expr.items}
            case Call(func=Dotted(parts=("slice",))):
                return slice(*(self._value(arg) for arg in expr.args))
            case Call(func=Dotted(parts=("device",) | ("torch", "device"))):
                return self._device(expr)
        raise BadText("FD612", "an expression that is neither a value nor a node", expr.span)

    def _key(self, key: Expr) -> Any:
        if isinstance(key, Constant):
            return key.value
        raise BadText("FD612", "a key that is no constant", key.span)

    def _name(self, expr: Dotted) -> Any:
        parts = expr.parts
        if len(parts) == 1 and (parts[0] in self._env or self._is_value(parts)):
            return self._named(expr)
        if _ENUM.fullmatch(".".join(parts)):
            self._note(f"`{'.'.join(parts)}` is kept by name")
            return OpaqueOp(".".join(parts))
        if parts[0] != "torch":
            short = targets.resolve_short(parts) if len(parts) == 3 else None
            if short is None:
                raise self._unknown(expr)
            return self._seen(short)
        if len(parts) == 2:
            constant = torch.__dict__.get(parts[1])
            if isinstance(constant, _FORMATS):
                return constant
        target = targets.resolve(".".join(parts)) if len(parts) > 2 else None
        if target is None:
            raise self._unknown(expr)
        return self._seen(target)

    def _device(self, expr: Call) -> torch.device:
        args, kwargs = self._arguments(expr)
        try:
            return torch.device(*args, **kwargs)
        except (RuntimeError, TypeError):
            raise BadText("FD610", f"unknown device `{expr.span.text}`", expr.span) from None


def _public(name: str, span: Span) -> str:
    if name.startswith("__"):
        raise BadText("FD612", f"`{name}` is an internal of Python", span)
    return name


def _empty() -> fx.Graph:
    graph = fx.Graph()
    graph.output(())
    return graph


def _module_path(func: Expr) -> str | None:
    """`a.b` for `self.a.b` and for `getattr(self.a, "b")`."""
    if isinstance(func, Dotted):
        return ".".join(func.parts[1:]) if func.parts[0] == "self" and len(func.parts) > 1 else None
    if not isinstance(func, Call) or not isinstance(func.func, Dotted):
        return None
    if func.func.parts != ("getattr",) or len(func.args) != 2:
        return None
    last = func.args[1]
    root = (
        "" if func.args[0] == Dotted(("self",), func.args[0].span) else _module_path(func.args[0])
    )
    if root is None or not isinstance(last, Constant) or not isinstance(last.value, str):
        return None
    return f"{root}.{last.value}" if root else last.value
