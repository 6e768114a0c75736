"""Searches of the log: a crowd's is one, a flood waits for itself and for nobody else, and a failure is whoever asked for it's."""

import asyncio
import gc

import pytest

from edge.log import LogAway
from edge.reading.searches import AT_ONCE, Searches
from tests.support.edge import turns


class Looked:
    """Searches whose every look waits for the test."""

    def __init__(self):
        self.begun = []
        self.go = asyncio.Event()
        self.failure = None
        self.searches = Searches(self._look)

    async def _look(self, generation_id, tenant):
        self.begun.append((tenant, generation_id))
        await self.go.wait()
        if self.failure:
            raise self.failure
        return f"{tenant}/{generation_id}"

    def ask(self, generation_id, tenant="acme"):
        """Ask in a task of its own."""
        return asyncio.ensure_future(self.searches.find(generation_id, tenant))


async def test_a_crowd_is_one_search():
    """However many ask for one generation, it is looked for once; who asks behind its end has it looked for again."""
    looked = Looked()
    crowd = [looked.ask("g") for _ in range(50)]
    await turns()
    assert looked.begun == [("acme", "g")]
    looked.go.set()
    assert set(await asyncio.gather(*crowd)) == {"acme/g"}
    assert await looked.ask("g") == "acme/g"
    assert len(looked.begun) == 2


async def test_a_flood_waits_for_itself_alone():
    """Of one tenant so many are looked for at once; another's is not behind them, nor the same id for another tenant."""
    looked = Looked()
    flood = [looked.ask(str(number)) for number in range(10 * AT_ONCE)]
    await turns()
    assert len(looked.begun) == AT_ONCE
    stranger = looked.ask("0", "other")
    await turns()
    assert looked.begun[-1] == ("other", "0")
    looked.go.set()
    assert await stranger == "other/0"
    assert await asyncio.gather(*flood) == [f"acme/{number}" for number in range(10 * AT_ONCE)]


async def test_who_leaves_takes_nobody_with_him():
    """One of two that ask goes away: the other has the answer."""
    looked = Looked()
    first, second = looked.ask("g"), looked.ask("g")
    await turns()
    first.cancel()
    await turns()
    looked.go.set()
    assert await second == "acme/g"
    assert first.cancelled()


@pytest.mark.parametrize("stay", [True, False])
async def test_a_failure_is_told_to_whoever_is_there(stay):
    """A log that is away is everybody's news who asked, and no line where all of them have left; then it is asked again."""
    looked = Looked()
    looked.failure = LogAway("away")
    told = [looked.ask("g") for _ in range(2)]
    await turns()
    if not stay:
        for one in told:
            one.cancel()
    looked.go.set()
    answers = await asyncio.gather(*told, return_exceptions=True)
    kind = LogAway if stay else asyncio.CancelledError
    assert all(isinstance(answer, kind) for answer in answers)
    await turns()
    gc.collect()  # a failure that nobody took would be said here
    looked.failure = None
    assert await looked.ask("g") == "acme/g"
