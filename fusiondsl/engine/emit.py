"""Writes the right side of a rule into the graph and removes what it replaces."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized

from fusiondsl import ir
from fusiondsl.dims import NO_FACTS, Dim
from fusiondsl.engine import aten
from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.dryrun import buffer_kinds, to_flatten
from fusiondsl.engine.judge import Verdict
from fusiondsl.engine.layout import is_contiguous
from fusiondsl.engine.mutation import Version, root_of
from fusiondsl.engine.pattern import references
from fusiondsl.engine.place import Place
from fusiondsl.engine.recipe import OpStep, PrimitiveStep, primitive, spell_out
from fusiondsl.engine.site import Site
from fusiondsl.engine.sizes import Sizes, sym_size
from fusiondsl.engine.symbols import Size, shape_of

_ATEN = torch.ops.aten

# Assigning either takes the node out of the graph's tables and puts it back, for the attributes
# those tables go by; these are none of them.
_set_args: Callable[[fx.Node, Any], None] = vars(fx.Node)["args"].fset
_set_kwargs: Callable[[fx.Node, Any], None] = vars(fx.Node)["kwargs"].fset

_PROVENANCE = frozenset(
    {
        "stack_trace",
        "nn_module_stack",
        "original_aten",
        "from_node",
        "seq_nr",
        "custom",
        "recompute",
        "ac_graph_id",
        "source_fn_stack",
        "partitioner_tag",
    }
)


class Emitter:
    """Rewrites sites of one graph."""

    def __init__(self, compiled: Compiled, graph: fx.Graph, sizes: Sizes, fake_mode: Any) -> None:
        self._compiled = compiled
        self._graph = graph
        self._sizes = sizes
        self._fake_mode = fake_mode
        self._forward: dict[Any, fx.Node] = {}
        self._names: dict[int, str] = {}
        self.written: Collection[Any] = ()
        """Memory that some call of the graph writes."""

    def current(self, value: Any) -> Any:
        """The node that stands for a value after earlier rewrites."""
        while value in self._forward:
            value = self._forward[value]
        return value

    def name_of(self, target: Any) -> str:
        """What torch calls a new node of a target, before it is made unique."""
        known = self._names.get(id(target))
        if known is None:
            # As torch writes it in the end: it looks for what is no name anew at every node.
            name = self._graph._target_to_str(target).replace(".", "_")
            known = self._names[id(target)] = name
        return known

    def rewrite(self, site: Site, verdict: Verdict, place: Place) -> tuple[fx.Node, ...]:
        """Applies one site; returns the new nodes."""
        return _Rewrite(self, site, verdict, place).run()


class _Rewrite:
    def __init__(self, emitter: Emitter, site: Site, verdict: Verdict, place: Place) -> None:
        self.emitter = emitter
        self.compiled = emitter._compiled
        self.graph = emitter._graph
        self.site = site
        self.verdict = verdict
        assert verdict.operands is not None, "the rule may be applied here"
        self.operands = verdict.operands
        self.place = place
        self.point = place.point
        """New nodes go in front of this one."""
        self.new: list[fx.Node] = []
        self.nodes: dict[str, fx.Node] = {}
        self.provenance = _provenance(site)
        self.outputs = {w: values for _, w, values in site.outputs}
        alike = verdict.same_shape - verdict.relaid
        self.matched: dict[str | None, Any] = {
            w: v[0].meta.get("val") for w, v in self.outputs.items() if w in alike
        }
        """Fakes of the values that results replace as they are."""
        self.reused: set[fx.Node] = set()
        self.taken: set[fx.Node] = set()
        """New memory that stands for memory of its own."""
        self.inputs: list[fx.Node] = []

    def run(self) -> tuple[fx.Node, ...]:
        self._read_inputs()
        for step in self.site.rule.recipe.steps:
            self._step(step)
        for written, values in self.outputs.items():
            self._replace(written, values)
        for node in self.place.moved:
            self.point.prepend(node)
        self._erase()
        return tuple(self.new)

    def _read_inputs(self) -> None:
        for name, value in (*self.site.inputs, *self.site.kept):
            node = self.emitter.current(value)
            self.nodes[name] = node.node if isinstance(node, Version) else node
        self.inputs = [self.nodes[name] for name, _ in self.site.inputs]

    # --- steps -----------------------------------------------------------------------------------

    def _step(self, step: PrimitiveStep | OpStep) -> None:
        if isinstance(step, PrimitiveStep):
            self._primitive(step)
            return
        args = self._arguments(step)
        if step.mutates:
            self._functionalised(step, args)
            return
        positional, keywords = step.binding.written(args)
        call = self._call(step.target, positional, keywords)
        call.meta["eager_input_vals"] = (
            tuple(_val(a) for a in positional),
            {k: _val(a) for k, a in keywords.items()},
        )
        if step.binding.returns == 1:
            self._single(step, call)
            return
        self._items(step, call, 0)

    def _primitive(self, step: PrimitiveStep) -> None:
        args = tuple(self._operand(operand) for operand in step.operands)
        op, args = spell_out(step.op, args, _val)
        like = self.inputs[0].meta["val"]
        written = primitive(op, tuple(self._sized(a) for a in args), like)
        node = self._call(written.target, written.args, dict(written.kwargs))
        node.meta["val"] = self._fake(node)
        self._name(step.results[0], node)

    def _operand(self, operand: ir.Operand) -> Any:
        if isinstance(operand, ir.Ref) and operand.name in self.nodes:
            return self.nodes[operand.name]
        if isinstance(operand, ir.ListOf):
            return tuple(self._operand(item) for item in operand.items)
        return self.operands.scalar(operand)

    def _arguments(self, step: OpStep) -> list[Any]:
        """Argument nodes and constants in declaration order."""
        operands, joined = self._prepared(step)
        args: list[Any] = []
        for name, operand, value in operands:
            if name is not None:
                args.append(self.nodes[name])
            elif operand is not None:
                args.append(self._sized(self._operand(operand)))
            else:
                args.append(value)
        for i, keep in joined:
            args[i] = self._flatten(args[i], keep)
        return [list(a) if type(a) is tuple else a for a in args]

    def _prepared(self, step: OpStep) -> _Prepared:
        """The arguments of a step as far as they are the same at every site of this verdict."""
        known: _Prepared | None = self.verdict.memo.get(step)
        if known is None:
            known = self.verdict.memo[step] = self._prepare(step)
        return known

    def _prepare(self, step: OpStep) -> _Prepared:
        operands: list[tuple[str | None, ir.Operand | None, Any]] = []
        vals: list[Any] = []
        for argument, operand in zip(step.binding.arguments, step.operands, strict=True):
            value = self._operand(operand)
            if argument.wants_float and type(value) is int:
                value = float(value)
            vals.append(value.meta.get("val") if isinstance(value, fx.Node) else value)
            if isinstance(operand, ir.Ref) and operand.name in self.nodes:
                operands.append((operand.name, None, None))
            else:
                operands.append((None, operand if _varies(value) else None, value))
        joined = [(i, k) for i, k in enumerate(to_flatten(step.binding, vals)) if k is not None]
        return operands, joined

    def _flatten(self, node: fx.Node, keep: int) -> fx.Node:
        value = node.meta["val"]
        trailing = shape_of(value)[value.dim() - keep :]
        shape = [-1, *(self._size(size) for size in trailing)]
        flat = self._call(_ATEN.reshape.default, (node, shape), {})
        flat.meta["val"] = self._fake(flat)
        return flat

    def _sized(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._sized(item) for item in value)
        if isinstance(value, list):
            return [self._sized(item) for item in value]
        return self._size(value) if isinstance(value, Dim) else value

    def _size(self, size: Size) -> Any:
        if type(size) is int:
            return size
        found = self.emitter._sizes.source(size, self.inputs)
        if isinstance(found, tuple):
            with self.graph.inserting_before(self.point):
                node = sym_size(self.graph, *found)
            self._stamp(node)
            return node
        assert found is not None, f"the size {size} was expressible"
        return found

    # --- results ---------------------------------------------------------------------------------

    def _single(self, step: OpStep, call: fx.Node) -> None:
        name = step.results[0] if step.results else None
        call.meta["val"] = self._value(name, call)
        self._name(name, call)

    def _items(self, step: OpStep, call: fx.Node, offset: int) -> None:
        names = step.results
        fakes: list[Any] | None = None
        vals: list[Any] = [None] * offset
        for index in range(len(step.binding.results)):
            name = names[index] if index < len(names) else None
            matched = self.matched.get(name)
            if matched is None:
                if fakes is None:
                    fakes = self._fakes(step, call)
                matched = fakes[index]
            vals.append(matched)
        call.meta["val"] = tuple(vals)
        for index, name in enumerate(names):
            if name is not None and self._needed(name):
                self._item(name, call, index + offset, vals[index + offset])

    def _fakes(self, step: OpStep, call: fx.Node) -> list[Any]:
        """Fresh fakes of all results, for results that replace nothing."""
        if step.mutates:
            return self._buffer_fakes(step, call)
        result = self._fake(call)
        return list(result) if isinstance(result, tuple) else [result]

    def _buffer_fakes(self, step: OpStep, call: fx.Node) -> list[Any]:
        own: list[Any] = [None] * step.binding.returns
        for name in step.binding.mutated:
            given = call.kwargs.get(name)
            with self.emitter._fake_mode:
                own.append(
                    torch.empty_like(given.meta["val"]) if isinstance(given, fx.Node) else None
                )
        return own

    def _needed(self, name: str) -> bool:
        if name in self.outputs:
            return True
        return any(
            name in references(operand)
            for step in self.site.rule.recipe.steps
            for operand in step.operands
        )

    def _value(self, name: str | None, call: fx.Node) -> Any:
        matched = self.matched.get(name)
        return self._fake(call) if matched is None else matched

    def _item(self, name: str, call: fx.Node, index: int, value: Any) -> None:
        old = self._reusable(name)
        if old is not None:
            source, place = old.args
            if place == index and isinstance(source, fx.Node):
                old.replace_input_with(source, call)  # cheaper than assigning the arguments
            else:
                _set_args(old, (call, index))
            self.point.prepend(old)
            self.reused.add(old)
            old.meta["fusiondsl"] = self.provenance["fusiondsl"]
            self.nodes[name] = old
            return
        node = self._call(operator.getitem, (call, index), {})
        node.meta["val"] = value
        self._name(name, node)

    def _reusable(self, name: str) -> fx.Node | None:
        """The `getitem` that took this value can take it from the new call."""
        if self.matched.get(name) is None:
            return None
        old = self.outputs[name][0]
        if not isinstance(old, fx.Node) or old.target is not operator.getitem:
            return None
        if old is self.point or old in self.reused or old in self.site.staying:
            return None
        return old

    def _name(self, name: str | None, node: fx.Node) -> None:
        if name is not None:
            self.nodes[name] = node

    # --- mutating targets ------------------------------------------------------------------------

    def _functionalised(self, step: OpStep, args: list[Any]) -> None:
        given: dict[str, Any] = self._buffers(step, args)
        given.update(zip([a.name for a in step.binding.arguments], args, strict=True))
        kwargs = {name: given[name] for name in step.binding.names}
        call = self._functional_call(step, kwargs)
        call.meta["eager_input_vals"] = (
            (step.target,),
            {k: v.meta.get("val") if type(v) is fx.Node else _val(v) for k, v in kwargs.items()},
        )
        self._items(step, call, step.binding.item_offset)

    def _functional_call(self, step: OpStep, kwargs: dict[str, Any]) -> fx.Node:
        """A new functionalised call, or the matched one in its place turned into it."""
        host = self.point
        taken = host in self.reused or host in self.site.staying or host not in self.site.own
        if host.target is not auto_functionalized or taken:
            return self._call(auto_functionalized, (step.target,), kwargs)
        _set_args(host, (step.target,))
        _set_kwargs(host, kwargs)
        host.meta.clear()
        self._stamp(host)
        self.new.append(host)
        self.reused.add(host)
        self.point = host.next
        return host

    def _buffers(self, step: OpStep, args: list[Any]) -> dict[str, fx.Node]:
        return {buffer: self._buffer(step, buffer, result, args) for buffer, result in step.buffers}

    def _buffer(self, step: OpStep, buffer: str, name: str | None, args: list[Any]) -> fx.Node:
        matched = self.matched.get(name)
        if matched is not None:
            old = self._old_buffer(matched, (step, buffer))
            if old is not None:
                return old
            shape, dtype, device = shape_of(matched), matched.dtype, matched.device
        else:
            vals = [a.meta.get("val") if isinstance(a, fx.Node) else a for a in args]
            kinds = buffer_kinds(self.compiled, step, vals, self.operands, NO_FACTS)
            shape, dtype = kinds[buffer]
            device = self.inputs[0].meta["val"].device
        node = self._call(
            _ATEN.empty.memory_format,
            ([self._size(size) for size in shape],),
            {"dtype": dtype, "device": device, "pin_memory": False},
        )
        node.meta["val"] = self._fake(node)
        return node

    def _old_buffer(self, matched: torch.Tensor, key: Any) -> fx.Node | None:
        """A matched call's own fresh buffer of the same kind, free once that call is gone."""
        memo = self.verdict.memo
        if key not in memo:
            # A buffer is of the shape of its result, and that is the same for a whole verdict.
            memo[key] = [
                (i, j)
                for i, call in enumerate(self.site.calls)
                for j, buffer in enumerate(call.buffers)
                if _same_kind(buffer.meta.get("val"), matched)
            ]
        for i, j in memo[key]:
            buffer: fx.Node = self.site.calls[i].buffers[j]
            if id(buffer.target) in aten.ALLOCATION_IDS and self._is_free(buffer):
                if not buffer < self.point:
                    self.point.prepend(buffer)
                self.reused.add(buffer)
                return buffer
        return None

    def _is_free(self, buffer: fx.Node) -> bool:
        own = self.site.own
        return buffer not in self.reused and own.keys() >= buffer.users.keys()

    # --- replacing and erasing -------------------------------------------------------------------

    def _replace(self, written: str, values: list[Any]) -> None:
        node = self.nodes[written]
        same = written in self.verdict.same_shape
        for old in values:
            if old is node:
                self._take(old, node)
                continue
            new = node if same else self._like(node, old)
            if written in self.verdict.relaid and _is_returned(old):
                new = self._copy(new, memory_format=torch.contiguous_format)
            elif not self._take(old, new):
                new = self._copy(new)
            self._redirect(old, new)
            self.emitter._forward[old] = new

    def _take(self, old: Any, new: fx.Node) -> bool:
        """Whether `new` may be `old` as it is: memory that was separate has to stay so.

        Outputs of a graph never share memory, even where they are one value; and where a graph
        writes into its values, one written for another is wrong.
        """
        seen = _is_returned(old) or self._is_written(new)
        if not seen or self._is_shared(old):
            return True
        memory = _memory(new)
        free = memory is old or memory in self.new or memory in self.reused
        if not free or memory in self.taken:
            return False
        self.taken.add(memory)
        return True

    def _is_shared(self, old: Any) -> bool:
        """A view of a value that stays, or of another output."""
        memory = _memory(old)
        if memory is old:
            return False
        return memory not in self.site.own or any(memory in vs for vs in self.outputs.values())

    def _is_written(self, new: fx.Node) -> bool:
        written = self.emitter.written
        if not written:
            return False
        replaced = (v for vs in self.outputs.values() for v in vs)
        return _memory(new) in written or any(v in written for v in replaced)

    def _redirect(self, old: Any, new: fx.Node) -> None:
        own = self.site.own
        if not isinstance(old, Version):
            old.replace_all_uses_with(new, lambda user: user not in own)
            return
        for user in old.users:
            if user not in own:
                user.replace_input_with(old.node, new)

    def _copy(self, node: fx.Node, **form: Any) -> fx.Node:
        copy = self._call(_ATEN.clone.default, (node,), form)
        copy.meta["val"] = self._fake(copy)
        return copy

    def _like(self, node: fx.Node, old: Any) -> fx.Node:
        """The new value in the exact shape of the one it replaces."""
        value = old.meta.get("val")
        shape = shape_of(value)
        if shape_of(node.meta["val"]) == shape:
            return node
        unknown = [size for size in shape if type(size) is not int]
        if len(unknown) == 1:
            sizes: list[Any] = [size if type(size) is int else -1 for size in shape]
        else:
            sizes = [self._size(size) for size in shape]
        reshaped = self._call(_ATEN.reshape.default, (node, sizes), {})
        reshaped.meta["val"] = value if is_contiguous(node.meta["val"]) else self._fake(reshaped)
        return reshaped

    def _erase(self) -> None:
        """Removes matched nodes and their buffers that nobody reads any more, last first."""
        kept = self.site.staying | self.reused
        pending = {node for node in self.site.own if node not in kept}
        for call in self.site.calls:
            pending.update(b for b in call.buffers if id(b.target) in aten.ALLOCATION_IDS)
        for node in sorted(pending, reverse=True):
            if not node.users and node not in self.reused and not node._erased:
                self.graph.erase_node(node)

    # --- nodes -----------------------------------------------------------------------------------

    def _call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        node = self.graph.create_node("call_function", target, name=self.emitter.name_of(target))
        self.point.prepend(node)
        # Creating a node with arguments looks through them for symbolic sizes, in Python.
        if args:
            _set_args(node, args)
        if kwargs:
            _set_kwargs(node, kwargs)
        self._stamp(node)
        self.new.append(node)
        return node

    def _stamp(self, node: fx.Node) -> None:
        node.meta.update(self.provenance)

    def _fake(self, node: fx.Node) -> Any:
        # What has no value is a layer; a fake hands it on.
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val", n))
        shape_env = self.emitter._fake_mode.shape_env
        guards = nullcontext() if shape_env is None else shape_env.suppress_guards()
        target: Any = node.target
        with self.emitter._fake_mode, guards:
            return target(*args, **kwargs)


_Prepared: TypeAlias = tuple[list[tuple[str | None, ir.Operand | None, Any]], list[tuple[int, int]]]
"""For each argument a node's name, an operand to work out at the site, or a constant; and the
arguments whose leading dimensions are joined, with how many trailing ones stay."""


def _is_returned(value: Any) -> bool:
    return any(user.op == "output" for user in value.users)


def _memory(value: Any) -> Any:
    """The value whose memory a view shows, of others the value itself."""
    return root_of(value) if isinstance(value, fx.Node) else value


def _same_kind(value: Any, other: torch.Tensor) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dtype is other.dtype
        and shape_of(value) == shape_of(other)
    )


def _varies(value: Any) -> bool:
    """A value with nodes or symbolic sizes in it is written anew at every site."""
    if isinstance(value, (tuple, list)):
        return any(map(_varies, value))
    return isinstance(value, (fx.Node, Dim))


def _val(arg: Any) -> Any:
    if isinstance(arg, fx.Node):
        return arg.meta.get("val")
    if isinstance(arg, list):
        return [_val(item) for item in arg]
    return arg


def _provenance(site: Site) -> Mapping[str, Any]:
    """Metadata of the replaced nodes that new nodes carry, with the rule that made them."""
    carried: dict[str, Any] = {}
    for call in site.calls:
        meta = call.node.meta
        for key in filter(_PROVENANCE.__contains__, meta):
            if key not in carried:
                carried[key] = meta[key]
    carried["fusiondsl"] = dict(site.rule.origin)
    return carried
