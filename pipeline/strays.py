"""Records of generations that are not open, kept aside until their ``message_start`` comes.

Only damaged logs have them: a start is acknowledged before anything else of its generation is sent. Bounded: above
``records_max`` the oldest group is given back. They are kept below P too, since a start at or above P may follow strays
below it; what lies wholly below P emits nothing, which ``fold`` decides. Pure. Before and after: ``fold``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.codec import Codec
from schemas.events import LogEvent
from schemas.parts import Joiner


@dataclass(slots=True)
class Group:
    """The strays of one generation, in log order, each with its offset (of its last part)."""

    first_offset: int
    records: list[tuple[int, LogEvent]] = field(default_factory=list)
    joiner: Joiner | None = None

    @property
    def terminal_offset(self) -> int | None:
        """Where its first terminal lies; None without one."""
        return next((offset for offset, event in self.records if event.is_terminal), None)


class Strays:
    """All groups of a partition.

    Args:
        codec: joins the parts of large records.
        records_max: so many records at most, all groups together.
    """

    def __init__(self, codec: Codec, records_max: int) -> None:
        self._codec = codec
        self._records_max = records_max
        self._groups: dict[str, Group] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._groups)

    def join(self, offset: int, event: LogEvent) -> LogEvent | None:
        """The whole record, or None while parts of it are outstanding."""
        if event.part is None:
            return event
        group = self._groups.setdefault(event.generation_id, Group(offset))
        if group.joiner is None:
            group.joiner = Joiner(self._codec)
        whole = group.joiner.offer(event, offset)
        if whole is not None and not group.records:
            del self._groups[event.generation_id]
        return whole

    def put(self, offset: int, event: LogEvent) -> list[Group]:
        """Keep a record aside; the oldest groups, where there are too many records now."""
        self._groups.setdefault(event.generation_id, Group(offset)).records.append((offset, event))
        self._count += 1
        given_back: list[Group] = []
        while self._count > self._records_max:
            group = self.pop(next(iter(self._groups)))
            if group is not None:
                given_back.append(group)
        return given_back

    def pop(self, generation_id: str) -> Group | None:
        """The strays of a generation that opens now."""
        group = self._groups.pop(generation_id, None)
        if group is not None:
            self._count -= len(group.records)
        return group

    def take_all(self) -> list[Group]:
        """Every group, at the partition's end."""
        groups, self._groups, self._count = list(self._groups.values()), {}, 0
        return groups

    def first_offsets(self) -> Iterator[int]:
        """Of each group: the commit must not pass it."""
        return (group.first_offset for group in self._groups.values())

    def terminal_offsets(self, from_offset: int) -> Iterator[int]:
        """Of each group that will give a row at or above ``from_offset``: P must not pass it."""
        offsets = (group.terminal_offset for group in self._groups.values())
        return (offset for offset in offsets if offset is not None and offset >= from_offset)
