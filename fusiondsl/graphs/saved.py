"""Our own form of an FX graph on disk: JSON, versioned, the same bytes for the same graph."""

from __future__ import annotations

import json
import keyword
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import fx

from fusiondsl.diagnostics.diagnostic import Diagnostic, FusionError, Severity
from fusiondsl.diagnostics.source import Source
from fusiondsl.graphs.decode import Damaged, Decoder
from fusiondsl.graphs.encode import CannotSave, Encoder, Json, target_name
from fusiondsl.graphs.expressions import BadText
from fusiondsl.graphs.files import UNUSABLE, load_text
from fusiondsl.graphs.opaque import OpaqueModule
from fusiondsl.graphs.symbols import Symbols
from fusiondsl.graphs.targets import resolve

FORMAT = "fusiondsl-graph"
VERSION = 1

# What is kept of `Node.meta`: plain data, and values that later passes read.
_VALUES = ("val", "eager_input_vals")
_PLAIN = ("stack_trace", "seq_nr", "partitioner_tag", "desc")
_OPS = ("call_function", "call_method", "call_module", "get_attr", "placeholder", "output")
_MAX_DEPTH = 8


def save(gm: fx.GraphModule, path: str | Path) -> None:
    """Writes the graph to `path`. Raises `FusionError` (FD622) for what has no saved form."""
    # Encoded in full before the file is touched: a refused graph leaves no broken file.
    text = dumps(gm)
    Path(path).write_text(text, encoding="utf-8")


def load(path: str | Path) -> fx.GraphModule:
    """The graph at `path`, with fake values in one `ShapeEnv`; nothing in the file is executed."""
    return loads(load_text(path))[0]


def dumps(gm: fx.GraphModule) -> str:
    """The saved form: a header line, then one line a node."""
    try:
        tree = _encode(gm, 0)
    except CannotSave as problem:
        _fail("FD622", f"cannot save the graph: {problem}")
    return _lines(tree)


def is_saved(source: Source) -> bool:
    return source.text.startswith(f'{{"format":"{FORMAT}"')


def loads(source: Source) -> tuple[fx.GraphModule, Symbols]:
    try:
        tree = json.loads(source.text)
        header = (tree["format"], tree["version"])
    except (ValueError, RecursionError, TypeError, KeyError):
        _fail("FD620", f"{source.name} is not a saved graph")
    if header != (FORMAT, VERSION):
        _fail(
            "FD620",
            f"{source.name} has format {header[0]}, version {header[1]}; expected "
            f"{FORMAT}, version {VERSION}",
        )
    try:
        return _decode(tree, 0)
    except (Damaged, BadText) as problem:
        _fail("FD621", f"{source.name}: {problem}")
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError):
        _fail("FD621", f"{source.name} is damaged")


def _fail(code: str, message: str) -> NoReturn:
    raise FusionError([Diagnostic(code, Severity.ERROR, message, None)], UNUSABLE)


def _lines(tree: dict[str, Any]) -> str:
    def compact(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    header = compact({k: v for k, v in tree.items() if k != "nodes"})
    nodes = ",\n".join(compact(node) for node in tree["nodes"])
    return f'{header[:-1]},"nodes":[\n{nodes}\n]}}\n'


# --- writing -----------------------------------------------------------------------------------


def _encode(gm: fx.GraphModule, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise CannotSave("graphs nested too deeply")
    encoder = Encoder()
    nodes = [_encode_node(node, encoder) for node in gm.graph.nodes]
    attributes = {name: _attribute(gm, name, encoder, depth) for name in _attribute_names(gm)}
    tree: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    tree["symbols"] = encoder.symbols()
    tree["attributes"] = attributes
    tree["nodes"] = nodes
    return tree


def _encode_node(node: fx.Node, encoder: Encoder) -> dict[str, Json]:
    tree: dict[str, Json] = {"name": node.name, "op": node.op}
    if node.op != "output":
        tree["target"] = node.target if isinstance(node.target, str) else target_name(node.target)
    if node.args:
        tree["args"] = [encoder.encode(arg) for arg in node.args]
    if node.kwargs:
        tree["kwargs"] = {name: encoder.encode(value) for name, value in node.kwargs.items()}
    tree.update({key: encoder.encode(node.meta[key]) for key in _VALUES if key in node.meta})
    tree.update({key: value for key, value in _plain_meta(node).items() if value is not None})
    return tree


def _plain_meta(node: fx.Node) -> dict[str, Json]:
    meta: dict[str, Json] = {}
    for key in _PLAIN:
        if isinstance(node.meta.get(key), (int, str)):
            meta[key] = node.meta[key]
    stack = node.meta.get("nn_module_stack")
    if isinstance(stack, dict):
        meta["nn_module_stack"] = [[str(key), *_frame(frame)] for key, frame in stack.items()]
    aten = node.meta.get("original_aten")
    if aten is not None and callable(aten):
        meta["original_aten"] = target_name(aten)
    return meta


def _frame(frame: object) -> list[Json]:
    """(path, class) of a module; a class is kept by its qualified name."""
    parts = frame if isinstance(frame, (tuple, list)) else (frame,)
    return [
        f"{part.__module__}.{part.__qualname__}" if isinstance(part, type) else str(part)
        for part in parts
    ]


def _attribute_names(gm: fx.GraphModule) -> list[str]:
    names = {str(n.target) for n in gm.graph.nodes if n.op in ("get_attr", "call_module")}
    return sorted(names)


def _attribute(gm: fx.GraphModule, name: str, encoder: Encoder, depth: int) -> Any:
    value: Any = gm
    for part in name.split("."):
        value = getattr(value, part)
    if isinstance(value, fx.GraphModule):
        return {"graph": _encode(value, depth + 1)}
    if isinstance(value, OpaqueModule):
        return {"opaque": True}
    if isinstance(value, torch.nn.Module):
        raise CannotSave(f"the submodule {name} of type {type(value).__name__}")
    return {"value": encoder.encode(value)}


# --- reading -----------------------------------------------------------------------------------


def _decode(tree: dict[str, Any], depth: int) -> tuple[fx.GraphModule, Symbols]:
    if depth > _MAX_DEPTH:
        raise Damaged("graphs nested too deeply")
    nodes: dict[str, fx.Node] = {}
    decoder = Decoder(tree["symbols"], nodes)
    graph = fx.Graph()
    for item in tree["nodes"]:
        node = _decode_node(item, graph, decoder)
        nodes[item["name"]] = node
    root = torch.nn.Module()
    for name, value in tree["attributes"].items():
        _place(root, _path(name), _decode_attribute(value, decoder, depth))
    return fx.GraphModule(root, graph), decoder.symbols


def _decode_node(tree: dict[str, Any], graph: fx.Graph, decoder: Decoder) -> fx.Node:
    op, name = tree["op"], tree["name"]
    if op not in _OPS:
        raise Damaged(f"unknown kind of node {op!r}")
    args = tuple(decoder.decode(arg) for arg in tree.get("args", ()))
    kwargs = {_word(k): decoder.decode(v) for k, v in tree.get("kwargs", {}).items()}
    node = graph.create_node(op, _target(op, tree), args, kwargs, name=_word(name))
    if node.name != name:
        raise Damaged(f"two nodes are called {name!r}")
    for key in _VALUES:
        if key in tree:
            node.meta[key] = decoder.decode(tree[key])
    for key in _PLAIN:
        if key in tree:
            node.meta[key] = tree[key]
    if "nn_module_stack" in tree:
        node.meta["nn_module_stack"] = {k: tuple(frame) for k, *frame in tree["nn_module_stack"]}
    if "original_aten" in tree:
        node.meta["original_aten"] = resolve(tree["original_aten"])
    return node


def _target(op: str, tree: dict[str, Any]) -> Any:
    if op == "output":
        return "output"
    name = tree["target"]
    if op == "call_function":
        target = resolve(name)
        if target is None:
            raise Damaged(f"unknown function {name!r}")
        return target
    if op == "call_method" and name.startswith("__"):
        raise Damaged(f"{name!r} is an internal of Python")
    if op in ("call_method", "placeholder"):
        return _word(name)
    return ".".join(_path(name))


def _word(name: str) -> str:
    """FX compiles the graph to code that holds these names: nothing but identifiers may pass."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise Damaged(f"{name!r} is no name")
    return name


def _path(name: str) -> list[str]:
    parts = name.split(".")
    for part in parts:
        if not part.isdigit():
            _word(part)
    return parts


def _decode_attribute(tree: dict[str, Any], decoder: Decoder, depth: int) -> Any:
    if "graph" in tree:
        return _decode(tree["graph"], depth + 1)[0]
    if "opaque" in tree:
        return OpaqueModule()
    return decoder.decode(tree["value"])


def _place(root: torch.nn.Module, path: list[str], value: Any) -> None:
    for part in path[:-1]:
        if not hasattr(root, part):
            root.add_module(part, torch.nn.Module())
        root = getattr(root, part)
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        root.register_buffer(path[-1], value)
    else:
        setattr(root, path[-1], value)
