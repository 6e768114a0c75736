"""Waiting for conditions with a deadline, and collecting what a log says about appended records."""

import asyncio

WITHIN_S = 20
_POLL_S = 0.005


async def until(condition, within_s=WITHIN_S):
    """Wait until a condition holds; fail the test where it does not in time."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - any condition can be waited for so, an event would be the code's own
            await asyncio.sleep(_POLL_S)


async def drain(reader, count, within_s=WITHIN_S):
    """Read exactly so many records from a log's reader."""
    found = []
    async with asyncio.timeout(within_s):
        while len(found) < count:
            found.extend((await reader.read()).records)
    assert len(found) == count
    return found


class Acks:
    """What became of appended records, in the order in which the log said it."""

    def __init__(self):
        self.appended = 0
        self.acked = []
        self.failed = []

    @property
    def names(self):
        """Give the names of the acknowledged records, in the order of their acknowledgement."""
        return [name for name, _ in self.acked]

    @property
    def settled(self):
        """Tell how many records were acknowledged or failed."""
        return len(self.acked) + len(self.failed)

    def append(self, log, partition, key, values, name):
        """Append the values as one record under a name."""
        self.appended += 1
        log.append(
            partition,
            key,
            values,
            lambda offset: self.acked.append((name, offset)),
            lambda error: self.failed.append((name, error)),
        )

    async def all_settled(self, within_s=WITHIN_S):
        """Wait until each record was acknowledged or failed."""
        await until(lambda: self.settled >= self.appended, within_s)

    async def offsets(self, within_s=WITHIN_S):
        """Give the offsets in the order of acknowledgement; no record may have failed."""
        await self.all_settled(within_s)
        assert not self.failed
        return [offset for _, offset in self.acked]
