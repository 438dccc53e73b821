"""The JSON Schema of YAML rule files, made from the same `shapes` the reader follows."""

from __future__ import annotations

from typing import Any

from fusiondsl.syntax import shapes
from fusiondsl.syntax.shapes import Kind

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_SCALAR = ["string", "number", "boolean", "null"]
"""YAML readers other than ours turn `4096` and `true` into values; they are texts to us."""


def json_schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fusiondsl rule file",
        **_schema(shapes.MODULE),
    }


def _schema(kind: Kind) -> dict[str, Any]:
    match kind:
        case shapes.Text(start, doc):
            scalar = start in ("expression_text", "condition_text", "count_text", "value")
            return {"type": _SCALAR if scalar else "string", "description": doc}
        case shapes.Word(dotted):
            return {"type": "string", "pattern": f"^{_name(dotted)}$"}
        case shapes.Prose():
            return {"type": "string"}
        case shapes.Flag():
            return {"type": "boolean"}
        case shapes.ListOf(item):
            return {"type": "array", "items": _schema(item)}
        case shapes.MapOf(value, dotted):
            return {
                "type": "object",
                "additionalProperties": _schema(value),
                "propertyNames": {"pattern": f"^{_name(dotted)}$"},
            }
        case shapes.Either(options):
            return {"anyOf": [_schema(option) for option in options]}
        case shapes.Shape():
            return _object(kind)


def _name(dotted: bool) -> str:
    return rf"{_NAME}(\.{_NAME})*" if dotted else _NAME


def _object(shape: shapes.Shape) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key.name: _documented(key) for key in shape.keys},
        "additionalProperties": False if shape.rest is None else _schema(shape.rest),
    }
    required = [key.name for key in shape.keys if key.required]
    return {**schema, "required": required} if required else schema


def _documented(key: shapes.Key) -> dict[str, Any]:
    return {**_schema(key.kind), "description": key.doc}
