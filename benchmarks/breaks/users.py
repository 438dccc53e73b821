"""Somebody else who reads or writes a value of the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import fx

from benchmarks.breaks.source import Broken, Expected, Make, Source, also_called, internal

aten = torch.ops.aten


def extra_users(make: Make) -> Iterator[Broken]:
    """Somebody else reads a value that would disappear."""
    for index in range(len(internal(make()))):
        source = make()
        name, node, _ = internal(source)[index]
        user = source.add(node, aten.neg.default, node)
        source.output(user)
        yield source.broken("extra user", name, "extra-user", node, user.name)


def writers(make: Make) -> Iterator[Broken]:
    """A value is written between its two calls, or after them."""
    for index in range(len(internal(make()))):
        source = make()
        name, node, _ = internal(source)[index]
        yield _written(source, "written in between", name, node, after=node)
        source = make()
        name, node, _ = internal(source)[index]
        last = list(source.graph.nodes)[-2]
        yield _written(source, "written afterwards", name, node, after=last)


def _written(source: Source, kind: str, name: str, node: fx.Node, after: fx.Node) -> Broken:
    """The writer reads the value as well: it is a user that is one too many."""
    writer = source.add(after, aten.add_.Scalar, node, 1)
    case = source.broken(kind, name, "effect", writer, *also_called(source, name))
    user = Expected("extra-user", frozenset({node.name}), frozenset({writer.name}))
    return replace(case, expected=replace(case.expected, instead=user))


def written_inputs(make: Make) -> Iterator[Broken]:
    """An input is written before the place where the new code would read it."""
    source = make()
    for param in source.rule.params:
        fresh = make()
        node = fresh.nodes.get(param.name)
        if node is None or node.op != "placeholder" or len(node.users) != 1:
            continue
        (reader,) = node.users
        calls = [fresh.call_of(call) for call in fresh.rule.match]
        rest = [call for call in calls if call is not None and call > reader]
        value = node.meta["val"]
        if not rest or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        writer = fresh.add(reader, aten.add_.Scalar, node, 1)
        yield fresh.broken("input written in between", param.name, "effect", writer, param.name)
