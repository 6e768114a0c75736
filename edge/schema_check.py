"""Does a JSON value keep to the schema that the client asked for? Of JSON Schema what is cheap and certain.

Understood: ``type``, ``enum``, ``const``, ``required``, ``properties``, ``additionalProperties`` (false, or a schema),
``items``, ``anyOf``. Everything else (references, patterns, formats, numbers' bounds, …) is not looked at: a value is only
called wrong where one of these says so. The schema is the client's and may be anything; what is no schema asks nothing.

Each level of the value is visited once for each schema that applies to it, ``VISITS_MAX`` in all. Pure. Before:
``output_check``. After: nothing.
"""

from collections.abc import Mapping
from typing import Any

VISITS_MAX = 20_000
"""Some 10 ms; a value that needs more is taken for good."""
DEPTH_MAX = 100
"""Levels of a schema or a value that are looked into; what lies deeper is taken for good."""
PLAIN_TOOLS = frozenset(
    {"custom", "code_interpreter", "shell", "local_shell", "computer", "computer_use_preview", "apply_patch"}
)
"""OpenAI's tools whose input is not JSON; where one of them is offered, only calls of the named functions are."""

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int,),
}


def keeps_to(value: Any, schema: Any) -> bool:
    """Whether nothing that is understood of the schema is broken by the value."""
    return _Check().holds(value, schema)


def schema_of_content(body: Mapping[str, Any]) -> Any:
    """The schema of JSON-mode content in a client's request, in any of the dialects' words for it; None for none."""
    chat, text = _object(body.get("response_format")), _object(body.get("text"))
    for asked in (
        _object(chat.get("json_schema")),
        _object(text.get("format")),
        _object(body.get("output_format")),
        _object(_object(body.get("output_config")).get("format")),
    ):
        if "schema" in asked:
            return asked["schema"]
    return None


def has_plain_tools(body: Mapping[str, Any]) -> bool:
    """Whether the client offers a tool whose input is no JSON: free text, code, a command."""
    tools = body.get("tools")
    return isinstance(tools, list) and any(_is_plain(_object(tool)) for tool in tools)


def schemas_of_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of each tool's arguments by the tool's name."""
    found: dict[str, Any] = {}
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        said = _object(tool)
        if _is_plain(said):
            continue
        function = _object(said.get("function")) or said
        name = function.get("name")
        if isinstance(name, str):
            found[name] = function.get("parameters", function.get("input_schema"))
    return found


def _is_plain(tool: dict[str, Any]) -> bool:
    kind = tool.get("type")
    return isinstance(kind, str) and kind in PLAIN_TOOLS


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class _Check:
    def __init__(self) -> None:
        self._visits = 0
        self._depth = 0

    def holds(self, value: Any, schema: Any) -> bool:
        self._visits += 1
        if self._visits > VISITS_MAX or self._depth >= DEPTH_MAX:
            return True
        if not isinstance(schema, dict):
            return schema is not False
        self._depth += 1
        try:
            return self._keeps(value, schema)
        finally:
            self._depth -= 1

    def _keeps(self, value: Any, schema: dict[str, Any]) -> bool:
        return (
            _has_type(value, schema.get("type"))
            and ("const" not in schema or _same(value, schema["const"]))
            and self._enum(value, schema.get("enum"))
            and self._any(value, schema.get("anyOf"))
            and self._fields(value, schema)
            and self._items(value, schema.get("items"))
        )

    def _enum(self, value: Any, allowed: Any) -> bool:
        if not isinstance(allowed, list):
            return True
        self._visits += len(allowed)
        return any(_same(value, one) for one in allowed)

    def _any(self, value: Any, schemas: Any) -> bool:
        return not isinstance(schemas, list) or not schemas or any(self.holds(value, one) for one in schemas)

    def _fields(self, value: Any, schema: dict[str, Any]) -> bool:
        if not isinstance(value, dict):
            return True
        required, known = schema.get("required"), _object(schema.get("properties"))
        if isinstance(required, list) and any(
            isinstance(name, str) and name not in value for name in required
        ):
            return False
        rest = schema.get("additionalProperties")
        return all(self.holds(item, known.get(name, rest)) for name, item in value.items())

    def _items(self, value: Any, schema: Any) -> bool:
        if not isinstance(value, list) or not isinstance(schema, dict):
            return True
        return all(self.holds(item, schema) for item in value)


def _has_type(value: Any, asked: Any) -> bool:
    names = [asked] if isinstance(asked, str) else asked
    if not isinstance(names, list) or not all(isinstance(name, str) and name in _TYPES for name in names):
        return True
    return not names or any(_is_a(value, name) for name in names)


def _is_a(value: Any, name: str) -> bool:
    if isinstance(value, bool):  # a number to Python, to JSON none
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _same(value: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
