"""One record of the log as an event: parts joined, foreign schemas looked up, poison skipped.

The only way by which the edge's readers decode. Poison is None: it is put aside by the fold, which every record passes;
a reader goes on, and the reader's rule notices the missing seq. ``said_in`` is the same for the topics that are read whole.
Before: ``log``. After: ``find``, ``follow``, ``history``; ``registry``, ``configured``, ``claims``.
"""

from typing import TypeVar

import structlog

from edge.log import EventLog, LogAway
from schemas.codec import Codec
from schemas.errors import Poison, SchemaUnknown, Transient
from schemas.events import LogEvent, Struct
from schemas.parts import Joiner

told = structlog.get_logger()
T = TypeVar("T", bound=Struct)


async def said_in(log: EventLog, codec: Codec, value: bytes, record: type[T]) -> T | None:
    """A record of a small topic, also one of a process that is newer; None for one that cannot be read, which is said.

    A schema that is not known here yet is looked up: during an update no cancel, no claim and no key may be missed.
    """
    try:
        try:
            return codec.decode(value, record)
        except SchemaUnknown:
            await log.learn()
            return codec.decode(value, record)
    except (Poison, Transient) as error:
        told.warning("a record cannot be read, skipped", record=record.__name__, error=str(error))
        return None


async def record_of(log: EventLog, codec: Codec, value: bytes) -> LogEvent | None:
    """The record as it lies in the log, a part of a large one included; None for poison.

    Raises LogAway where its schema is not on the schemas topic yet: the reader comes back.
    """
    try:
        return codec.decode(value, LogEvent)
    except Poison:
        return None
    except SchemaUnknown:
        await log.learn()
    try:
        return codec.decode(value, LogEvent)
    except Poison:
        return None
    except SchemaUnknown as unknown:
        raise LogAway(str(unknown)) from unknown


async def whole_event(
    log: EventLog, codec: Codec, joiner: Joiner, value: bytes, offset: int
) -> LogEvent | None:
    """The event that a record completes; None for a part before the last, and for poison. Raises LogAway."""
    event = await record_of(log, codec, value)
    try:
        return None if event is None else joiner.offer(event, offset)
    except Poison:
        return None
