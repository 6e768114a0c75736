"""What the real log does while its broker is away: on a broker of its own, killed with SIGKILL and started again."""

import asyncio

import pytest

from compose.topics import apply
from edge.idempotency.claims import Claims, key_of
from edge.log import LogAway
from edge.log.kafka import KafkaLog
from schemas.codec import Codec
from schemas.records import ClaimRecord
from schemas.settings import Resume, Settings
from tests.support.edge import CODEC
from tests.support.eventlogs import new_key
from tests.support.kafka import session_kafka
from tests.support.waiting import Acks, drain

pytestmark = pytest.mark.services
REQUEST_TIMEOUT_MS = 2_000
OUTAGE_S = 60
PARTITION = 1


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """Give a broker that only this file uses, with our topics."""
    with session_kafka(tmp_path_factory.mktemp("outage")) as broker:
        asyncio.run(apply(broker.bootstrap_servers, window_days=Resume().window_days))
        yield broker


def log_at(bootstrap_servers, request_timeout_ms=REQUEST_TIMEOUT_MS):
    """Give a log that gives up soon."""
    kafka = {"bootstrap_servers": bootstrap_servers, "request_timeout_ms": request_timeout_ms}
    return KafkaLog(Settings(kafka=kafka), Codec())


async def append_until_acked(log, key, names):
    """Append records, each after the one before it settled, until one is acknowledged; what was settled."""
    acks = Acks()
    async with asyncio.timeout(OUTAGE_S):
        for name in names:
            acks.append(log, PARTITION, key, [b"%d" % name], name)
            await acks.all_settled(OUTAGE_S)
            if acks.acked:
                return acks
    raise AssertionError("no record was taken any more")


async def read_all(log, key, start):
    """Read every record of a key that the log has now."""
    _, end = await log.bounds(PARTITION)
    reader, position, values = log.reader(PARTITION, key, start, every=True), start, []
    async with asyncio.timeout(OUTAGE_S):
        while position < end:
            progress = await reader.read()
            position = progress.position
            values += [int(raw.value) for raw in progress.records]
    reader.close()
    return values


class Claimer:
    """Claims one key again and again, each time in a generation's name, and reads it back."""

    def __init__(self, log):
        self.claims = Claims(100)
        self._log, self._key = log, key_of("acme", "k")
        self.following = asyncio.ensure_future(self.claims.follow(log, CODEC))

    async def claim(self, name):
        """Claim and wait until it was read back."""
        record = ClaimRecord(
            claim_key=self._key, tenant="acme", generation_id=name, body_hash="ab", edge_id="e", wall_us=0
        )
        await self.claims.reached(*await self._log.claim(self._key.encode(), CODEC.encode(record)))

    async def claim_again(self, name):
        """The same until the log takes it."""
        async with asyncio.timeout(OUTAGE_S):
            while True:
                try:
                    return await self.claim(name)
                except LogAway:
                    continue

    def names(self):
        """Give who claimed, in log order."""
        return [claim.generation_id for claim in self.claims.standing(self._key, 0)]


async def test_a_killed_broker_costs_no_acknowledged_record_and_doubles_none(broker):
    """Over a kill -9 and a long outage each record is acknowledged or failed, once; the log keeps order and readers go on.

    What is said beside the events is refused in time, and claims are taken and read back again afterwards.
    """
    log, key, acks = log_at(broker.bootstrap_servers), new_key(), Acks()
    await log.start()
    claimer = Claimer(log)
    await asyncio.wait_for(claimer.claim("before"), OUTAGE_S)
    start = (await log.bounds(PARTITION))[1]
    follower = log.reader(PARTITION, key, start)
    for number in range(20):
        acks.append(log, PARTITION, key, [b"%d" % number], number)
    before = [raw.value for raw in await drain(follower, 20)]
    assert before == [b"%d" % number for number in range(20)]
    await acks.offsets()

    for number in range(20, 30):
        acks.append(log, PARTITION, key, [b"%d" % number], number)
    await asyncio.to_thread(broker.kill)
    for number in range(30, 40):
        acks.append(log, PARTITION, key, [b"%d" % number], number)
    beside = log.tell(key, b"nobody hears this"), claimer.claim("while away")
    async with asyncio.timeout(OUTAGE_S):
        refused = await asyncio.gather(*beside, return_exceptions=True)
    assert [type(error) for error in refused] == [LogAway, LogAway]
    await acks.all_settled(OUTAGE_S)
    assert {name for name, _ in acks.failed} >= set(range(30, 40))
    await asyncio.to_thread(broker.restart)

    later = await append_until_acked(log, key, range(40, 400))
    (last,) = later.names
    settled = [*acks.names, *(name for name, _ in acks.failed)]
    assert sorted(settled) == list(range(40))
    assert acks.names == sorted(acks.names)

    found = await read_all(log, key, start)
    assert found == sorted(set(found))
    assert {*acks.names, last} <= set(found)
    live = [int(raw.value) for raw in await drain(follower, len(found) - 20, OUTAGE_S)]
    assert live == found[20:]
    follower.close()
    await claimer.claim_again("after")
    assert [name for name in claimer.names() if name != "while away"] == ["before", "after"]
    claimer.following.cancel()
    await log.stop()


async def test_a_short_outage_is_ridden_out(broker):
    """A broker that is back within the request time-out costs time and nothing else: all acknowledged, once."""
    log, key, acks = log_at(broker.bootstrap_servers, 30_000), new_key(), Acks()
    await log.start()
    start = (await log.bounds(PARTITION))[1]
    acks.append(log, PARTITION, key, [b"0"], 0)
    await acks.all_settled()
    await asyncio.to_thread(broker.kill)
    for number in range(1, 20):
        acks.append(log, PARTITION, key, [b"%d" % number], number)
    telling = asyncio.ensure_future(log.tell(key, b"told while away"))
    await asyncio.to_thread(broker.restart)
    offsets = await acks.offsets(OUTAGE_S)
    assert acks.names == list(range(20))
    assert offsets == sorted(set(offsets))
    await asyncio.wait_for(telling, OUTAGE_S)
    assert await read_all(log, key, start) == list(range(20))
    await log.stop()


async def test_a_log_that_nobody_answers_for_says_what_to_do(unused_tcp_port):
    """Without a broker the start fails with an instruction, and leaves nothing open behind."""
    log = log_at(f"127.0.0.1:{unused_tcp_port}")
    with pytest.raises(LogAway, match="TOKENTRAIL_KAFKA__BOOTSTRAP_SERVERS"):
        await log.start()
