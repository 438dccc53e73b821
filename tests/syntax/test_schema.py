"""The JSON Schema describes what the reader takes."""

from __future__ import annotations

import json
from typing import Any

from fusiondsl.syntax.schema import json_schema
from tests.syntax.support import read


def test_is_json() -> None:
    assert json.loads(json.dumps(json_schema())) == json_schema()


def _shapes(schema: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    found = {path: schema} if "properties" in schema else {}
    for key, value in schema.get("properties", {}).items():
        found |= _shapes(value, f"{path}/{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found |= _shapes(schema[key], path)
    return found


def test_unknown_keys_are_errors_in_both() -> None:
    shapes = _shapes(json_schema())
    assert set(shapes) == {"", "/tables", "/ops", "/ops/forms", "/ops/impls", "/rules",
                           "/rules/examples", "/fuse", "/fuse/examples", "/expect"}  # fmt: skip
    for path, shape in shapes.items():
        is_open = path.endswith(("/examples", "/expect"))
        assert (shape["additionalProperties"] is not False) == is_open


def test_every_key_is_read() -> None:
    for key in json_schema()["properties"]:
        _, diagnostics = read(f"{key}: ''\n", "a.yaml")
        assert [item.code for item in diagnostics] == ["FD034"], key
