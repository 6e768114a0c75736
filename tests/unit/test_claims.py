"""The memory of claims: what is kept, in which order, what is forgotten, and when a place counts as read."""

import asyncio

import pytest

from edge.idempotency.claims import Claims, key_of
from edge.log import Placed
from edge.log.memory import MemoryLog
from schemas.records import ClaimRecord
from schemas.topics import CLAIMS, DAY_MS
from tests.support.edge import CODEC
from tests.support.waiting import until

KEY = key_of("acme", "k")
BODY = "ab" * 32
MANY = 1000


def claim_of(generation_id, key=KEY):
    """Give a claim."""
    return ClaimRecord(
        claim_key=key, tenant="acme", generation_id=generation_id, body_hash=BODY, edge_id="edge-1", wall_us=0
    )


def taken(claims, generation_id, offset, at_ms=0, partition=0, key=KEY):
    """Let a memory take a claim."""
    claims.take(Placed(partition, offset, at_ms, b""), claim_of(generation_id, key))


def standing(claims, at_ms=0, key=KEY):
    """Give the generations whose claims stand."""
    return [claim.generation_id for claim in claims.standing(key, at_ms)]


def test_claims_of_a_key_stand_in_log_order_for_a_day():
    """First come, first named, a day by the log's times, and no other key's."""
    claims = Claims(MANY)
    taken(claims, "a", 0)
    taken(claims, "b", 1, DAY_MS)
    taken(claims, "c", 2, key=key_of("acme", "other"))
    assert standing(claims, DAY_MS) == ["a", "b"]
    assert standing(claims, DAY_MS + 1) == ["b"]
    assert standing(claims, 2 * DAY_MS + 1) == []
    assert claims.standing(KEY, 0)[0].body_hash == bytes.fromhex(BODY)


def test_what_is_heard_again_changes_nothing():
    """A topic that is read again from its beginning: each claim once, one that was forgotten back in its old place."""
    claims = Claims(MANY)
    for number, name in enumerate("abc"):
        taken(claims, name, number)
    claims.forget(KEY, claims.standing(KEY, 0)[0])
    assert standing(claims) == ["b", "c"]
    for number, name in enumerate("abc"):
        taken(claims, name, number)
    assert standing(claims) == ["a", "b", "c"]


def test_above_the_limit_the_oldest_are_forgotten():
    """Oldest by the log's times, in whatever order the partitions are read; and it is said of each."""
    told = []
    claims = Claims(3, lambda: told.append(1))
    keys = [key_of("acme", str(number)) for number in range(5)]
    for at_ms, partition in ((2, 0), (4, 0), (1, 1), (3, 1), (5, 1)):
        taken(claims, f"g{at_ms}", at_ms, at_ms, partition, keys[at_ms - 1])
    assert [bool(standing(claims, key=key)) for key in keys] == [False, False, True, True, True]
    assert (len(claims), len(told)) == (3, 2)


def test_what_the_topic_no_longer_holds_is_forgotten():
    """Memory is bounded by time, too; nothing is lost by that."""
    told = []
    claims = Claims(MANY, lambda: told.append(1))
    taken(claims, "a", 0)
    taken(claims, "b", 1, CLAIMS.retention_ms, key=key_of("acme", "other"))
    assert len(claims) == 2
    taken(claims, "c", 2, CLAIMS.retention_ms + 1, key=key_of("acme", "third"))
    assert len(claims) == 2
    assert standing(claims) == told == []


async def test_a_place_is_reached_when_it_was_read():
    """Whoever claims waits for its own record, what cannot be read is passed, and the reading goes on."""
    claims, log = Claims(MANY), MemoryLog(lambda: 7)
    following = asyncio.ensure_future(claims.follow(log, CODEC))
    broken = await log.claim(b"", b"no claim")
    odd = await log.claim(b"", CODEC.encode(claim_of("x", key="no hex")))
    place = await log.claim(b"", CODEC.encode(claim_of("a")))
    early = asyncio.ensure_future(claims.reached(0, place[1] + 1))
    for read in (broken, odd, place, place):
        await asyncio.wait_for(claims.reached(*read), 5)
    assert standing(claims) == ["a"]
    assert claims.standing(KEY, 0)[0].at_ms == 7
    assert not early.done()
    await log.claim(b"", CODEC.encode(claim_of("b")))
    await asyncio.wait_for(early, 5)
    following.cancel()


async def test_a_wait_that_was_given_up_disturbs_nobody():
    """One that waits no longer, beside one that does."""
    claims, log = Claims(MANY), MemoryLog(lambda: 7)
    following = asyncio.ensure_future(claims.follow(log, CODEC))
    gone, there = (asyncio.ensure_future(claims.reached(0, 0)) for _ in range(2))
    await until(lambda: claims._waiting)
    gone.cancel()
    await log.claim(b"", CODEC.encode(claim_of("a")))
    await asyncio.wait_for(there, 5)
    with pytest.raises(asyncio.CancelledError):
        await gone
    following.cancel()
