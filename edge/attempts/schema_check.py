"""Does a JSON value keep to the schema that the client asked for? Of JSON Schema what is cheap and certain.

Understood: ``type``, ``enum``, ``const``, ``required``, ``properties``, ``additionalProperties`` (false, or a schema),
``items``, ``anyOf``. Everything else (references, patterns, formats, numbers' bounds, …) is not looked at: a value is only
called wrong where one of these says so. The schema is the client's and may be anything; what is no schema asks nothing.

Each level of the value is visited once for each schema that applies to it, a bounded number of times in all, and in
slices: a generator yields behind each, so that whoever runs it may let others have their turn. Pure. Before:
``output_check``. After: nothing.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Any

Slices = Generator[None, None, bool]
SLICE_VISITS = 1_000
"""About a millisecond."""
VISITS_AT_ONCE = 20_000
"""Some 20 ms: where nobody waits between the slices."""
VISITS_MAX = 150_000
"""More than the items of the longest text that is looked at; only alternatives within alternatives need more."""
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


def keeps_to(value: Any, schema: Any, visits_max: int = VISITS_AT_ONCE) -> Generator[None, None, bool | None]:
    """Whether nothing that is understood of the schema is broken by the value; None where it would take too long to say."""
    check = _Check(visits_max)
    keeps = yield from check.holds(value, schema)
    return None if keeps and check.gave_up else keeps


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
    def __init__(self, visits_max: int) -> None:
        self._visits_max = visits_max
        self._visits = 0
        self._next_slice = SLICE_VISITS
        self._depth = 0
        self.gave_up = False

    def holds(self, value: Any, schema: Any) -> Slices:
        """One visit; what is not looked at any more is taken for good."""
        self._visits += 1
        if self._visits >= self._next_slice:
            self._next_slice = self._visits + SLICE_VISITS
            yield
        if self._visits > self._visits_max:
            self.gave_up = True
        if self.gave_up or self._depth >= DEPTH_MAX:
            return True
        if not isinstance(schema, dict):
            return schema is not False
        self._depth += 1
        try:
            return (yield from self._keeps(value, schema))
        finally:
            self._depth -= 1

    def _keeps(self, value: Any, schema: dict[str, Any]) -> Slices:
        return (
            self._itself(value, schema)
            and (yield from self._any(value, schema.get("anyOf")))
            and (yield from self._fields(value, schema))
            and (yield from self._items(value, schema.get("items")))
        )

    def _within(self, asked: list[Any]) -> list[Any]:
        """So much of a schema's list as there are visits left for."""
        left = max(0, self._visits_max - self._visits)
        self._visits += len(asked)
        if len(asked) <= left:
            return asked
        self.gave_up = True
        return asked[:left]

    def _enum(self, value: Any, allowed: Any) -> bool:
        if not isinstance(allowed, list):
            return True
        return any(_same(value, one) for one in self._within(allowed)) or self.gave_up

    def _any(self, value: Any, schemas: Any) -> Slices:
        if not isinstance(schemas, list) or not schemas:
            return True
        for one in schemas:
            if (yield from self.holds(value, one)):
                return True
        return False

    def _fields(self, value: Any, schema: dict[str, Any]) -> Slices:
        if not isinstance(value, dict):
            return True
        required, known = schema.get("required"), _object(schema.get("properties"))
        if isinstance(required, list) and any(
            isinstance(name, str) and name not in value for name in self._within(required)
        ):
            return False
        rest = schema.get("additionalProperties")
        return (yield from self._all((item, known.get(name, rest)) for name, item in value.items()))

    def _items(self, value: Any, schema: Any) -> Slices:
        if not isinstance(value, list) or not isinstance(schema, dict):
            return True
        return (yield from self._all((item, schema) for item in value))

    def _all(self, pairs: Iterable[tuple[Any, Any]]) -> Slices:
        """Every value by its schema; single ones among them, the most by far, without a generator each."""
        for value, schema in pairs:
            within = self._visits < min(self._next_slice, self._visits_max)
            if (
                within
                and isinstance(schema, dict)
                and not isinstance(value, dict | list)
                and "anyOf" not in schema
            ):
                self._visits += 1
                keeps = self._itself(value, schema)
            else:
                keeps = yield from self.holds(value, schema)
            if not keeps:
                return False
        return True

    def _itself(self, value: Any, schema: dict[str, Any]) -> bool:
        """Whether a value keeps to what is said of it alone, and not of what is within it."""
        return (
            _has_type(value, schema.get("type"))
            and ("const" not in schema or _same(value, schema["const"]))
            and self._enum(value, schema.get("enum"))
        )


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
