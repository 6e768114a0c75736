"""Native events in, what an application wants out: text as it comes, tool calls when they are whole, the end.

Pure. Invariants: a tool call is given once, when the generation has ended properly and its arguments are whole; JSON can
be had only then; an error tells the text that came before it. Before: ``transport``. After: ``sessions``.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from tokentrail_client.endings import Fault, fault_of
from tokentrail_client.frames import Frame

_SPOKEN = {"text", "reasoning", "refusal"}


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of an answer. ``cursor``: where to go on once this was taken; None where more of its event follows."""

    cursor: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Text(Item):
    """Some text. ``kind``: text, reasoning, refusal."""

    text: str
    kind: str = "text"
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Citation(Item):
    """A source, as the provider named it."""

    part: dict[str, Any]
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall(Item):
    """A whole tool call. ``arguments`` is the JSON text as the model wrote it."""

    id: str | None
    name: str | None
    arguments: str
    choice: int = 0

    def parsed(self) -> Any:
        """The arguments as a value; none at all are an empty object."""
        return json.loads(self.arguments or "{}")


@dataclass(frozen=True, slots=True)
class End(Item):
    """The proper end. ``data``: all that the terminal says (usage, timings …); ``cut_off``: tool calls that are not whole."""

    finish_reason: str
    data: dict[str, Any]
    cut_off: tuple[ToolCall, ...] = ()


class GenerationFailed(Exception):
    """The generation ended in an error. ``text`` is what came before it."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(f"{fault.code}: {fault.message}")
        self.code = fault.code
        self.message = fault.message
        self.retryable = fault.retryable
        self.text = text


TEXT_CHARS_MAX = 64 << 20
"""What one generation may say: more than any model does. It is held in memory, all of it."""


class TooLong(Exception):
    """The generation says more than anybody wants to hold."""


class NotFinished(Exception):
    """The answer is not whole yet."""


@dataclass(slots=True)
class _Fragments:
    """A tool call as it comes: joined once, since it may be long."""

    choice: int
    id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list)

    def joined(self) -> ToolCall:
        return ToolCall(self.id, self.name, "".join(self.arguments), self.choice)


class Assembly:
    """Assembles one generation from its native events, all of them from the first on.

    Attributes:
        text: what was said so far, of the first choice.
        end: the proper end, None before it.
        fault: the error that ended it, None without one.

    """

    def __init__(self) -> None:
        self.end: End | None = None
        self.fault: Fault | None = None
        self._chars = 0
        self._said: list[str] = []
        self._tools: dict[tuple[int, int | str | None], _Fragments] = {}

    @property
    def text(self) -> str:
        """What was said so far, of the first choice."""
        return "".join(self._said)

    def json(self) -> Any:
        """The answer as JSON. Raises NotFinished before the proper end, ValueError where it is none."""
        if self.end is None:
            raise NotFinished("half a JSON text is no JSON: wait for the end")
        return json.loads(self.text)

    def take(self, frame: Frame) -> list[Item]:
        """The items of one event. Raises TooLong, or what reading something raises that is no event of an edge's."""
        if frame.event == "generation_error":
            self.fault = fault_of(frame.data) or Fault("error", frame.data)
            return []
        if frame.id is None:
            return []  # a heartbeat
        said = json.loads(frame.data)
        if frame.event == "message_end":
            items = self._ended(said)
        else:
            items = [item for part in said.get("parts", ()) if (item := self._part(part)) is not None]
        if items:
            items[-1] = replace(items[-1], cursor=frame.id)
        return items

    def _part(self, part: dict[str, Any]) -> Item | None:
        kind, text, choice = part.get("type"), part.get("text") or "", part.get("choice_index", 0)
        if not isinstance(text, str):
            raise TypeError(f"the text of a part is {type(text).__name__}")
        self._chars += len(text)
        if self._chars > TEXT_CHARS_MAX:
            raise TooLong(f"above {TEXT_CHARS_MAX} characters")
        if kind in _SPOKEN and text:
            if kind == "text" and choice == 0:
                self._said.append(text)
            return Text(text, str(kind), choice)
        if kind == "citation":
            return Citation(part, choice)
        if kind == "tool_call":
            self._fragment(part, choice, text)
        return None

    def _fragment(self, part: dict[str, Any], choice: int, text: str) -> None:
        index, call_id = part.get("tool_index"), part.get("tool_call_id")
        name = (choice, index if index is not None else call_id)
        call = self._tools.setdefault(name, _Fragments(choice))
        call.id, call.name = call.id or call_id, call.name or part.get("name")
        call.arguments.append(text)

    def _ended(self, said: dict[str, Any]) -> list[Item]:
        reason = said.get("finish_reason") or "unknown"
        calls = [call.joined() for call in self._tools.values()]
        whole = [call for call in calls if reason != "cancelled" and _is_whole(call)]
        self.end = End(reason, said, tuple(call for call in calls if call not in whole))
        return [*whole, self.end]


def _is_whole(call: ToolCall) -> bool:
    try:
        call.parsed()
    except (ValueError, RecursionError):
        return False
    return True
