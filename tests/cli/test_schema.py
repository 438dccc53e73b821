"""`schema`: editors accept what the reader accepts, and mark what it refuses."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fusiondsl.diagnostics import Diagnostics, Source
from fusiondsl.resources import patterns_root
from fusiondsl.syntax import parse
from fusiondsl.syntax.schema import json_schema
from tests.cli.conftest import Run

CASES = Path(__file__).parents[1] / "cases"
PAGE = Path(__file__).parents[2] / "docs" / "language.md"
VALID = [
    *sorted(patterns_root().rglob("*.yaml")),
    *sorted((CASES / "format").glob("*.yaml")),
    CASES / "syntax" / "valid.yaml",
]
BROKEN = ("wrong_kinds", "unknown_keys", "missing_keys", "names")
SCHEMA = json_schema()
SHAPE_CODES = {"FD033", "FD034"}

_KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
_ABOUT = {"$schema", "title", "description"}
_CHECKED = {"type", "properties", "additionalProperties", "required", "items", "anyOf"}


def faults(schema: dict[str, Any], value: object, path: str = "") -> Iterator[str]:
    """Where `value` is not what the part of JSON Schema that we use allows."""
    assert schema.keys() <= _ABOUT | _CHECKED | {"propertyNames", "pattern"}, schema.keys()
    options = schema.get("anyOf", [])
    if options and all(list(faults(option, value)) for option in options):
        yield f"{path}: none of the options"
    kinds = schema.get("type", list(_KINDS))
    if not any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{path}: no {kinds}"
    elif isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{path}: {value!r} is no {schema['pattern']}"
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from faults(schema.get("items", {}), item, f"{path}/{place}")
    elif isinstance(value, dict):
        yield from _object_faults(schema, value, path)


def _is(value: object, kind: str) -> bool:
    return isinstance(value, _KINDS[kind]) and (kind != "number" or not isinstance(value, bool))


def _object_faults(schema: dict[str, Any], value: dict[Any, Any], path: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}: lacks {name}"
    for name, item in value.items():
        yield from faults(schema.get("propertyNames", {}), str(name), f"{path}/{name}")
        rest = schema.get("additionalProperties", True)
        known = schema.get("properties", {}).get(name, rest)
        if known is False:
            yield f"{path}: has {name}"
        elif isinstance(known, dict):
            yield from faults(known, item, f"{path}/{name}")


def test_it_is_printed(run: Run) -> None:
    done = run("schema")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == SCHEMA
    assert json.loads(run("schema", "--format", "json").out)["schema"] == SCHEMA


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.name)
def test_what_the_reader_takes_is_valid(path: Path) -> None:
    assert list(faults(SCHEMA, yaml.safe_load(path.read_text(encoding="utf-8")))) == []


def test_the_blocks_of_the_language_page_are_valid() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert list(faults(SCHEMA, yaml.safe_load(block))) == []


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_not(name: str) -> None:
    text = (CASES / "syntax" / f"{name}.yaml").read_text(encoding="utf-8")
    assert list(faults(SCHEMA, yaml.safe_load(text)))


def _codes(data: object) -> set[str]:
    found = Diagnostics()
    parse(Source("changed.yaml", yaml.safe_dump(data, sort_keys=False)), found)
    return {item.code for item in found}


def _places(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if way:
        yield way
    if isinstance(data, dict | list):
        for name, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _places(value, (*way, name))


def _changed(data: Any, way: tuple[Any, ...], value: object) -> Any:
    changed = copy.deepcopy(data)
    place = changed
    for step in way[:-1]:
        place = place[step]
    place[way[-1]] = value
    return changed


def test_they_agree_on_the_shape_of_changed_files() -> None:
    data = yaml.safe_load((patterns_root() / "rocm_aiter/rms_norm_group_quant.yaml").read_text())
    agreed = {True: 0, False: 0}
    for way in _places(data):
        for value in ("x", [], ["x"], {"x": "y"}):
            changed = _changed(data, way, value)
            valid = not list(faults(SCHEMA, changed))
            assert valid == (not _codes(changed) & (SHAPE_CODES | {"FD017", "FD022"})), (way, value)
            agreed[valid] += 1
    assert min(agreed.values()) > 20
