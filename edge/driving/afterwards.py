"""How a generation ended, by the log alone: once emitting from memory is over, its own edge reads it like everybody.

Before: ``recorder`` lost its lease, or the log refused a record. After: ``service`` lets the provider go where another
writer has ended it.
"""

import structlog

from edge.follow import Follower, Hole, LogSilent, OffsetGone
from edge.generation import Delivered, Generation
from edge.log import EventLog
from schemas.codec import Codec

log = structlog.get_logger()


async def ended_by_log(event_log: EventLog, codec: Codec, generation: Generation) -> Delivered | None:
    """Follow the log to the terminal, whoever wrote it, and tell the readers; None where it cannot be read."""
    next_seq = generation.window_first_seq + len(generation.window)
    offset = generation.start_offset or 0
    partition = generation.identity.partition
    follower = Follower(event_log, codec, generation.id, partition, next_seq, offset, None)
    try:
        while not follower.ended:
            for delivered in await follower.read():
                generation.terminal = delivered if delivered.event.is_terminal else None
    except (Hole, LogSilent, OffsetGone) as error:
        log.warning("the end of a generation cannot be read", generation_id=generation.id, error=str(error))
    finally:
        follower.close()
    generation.ended.set()
    generation.wake()
    return generation.terminal
