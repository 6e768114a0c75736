"""The publisher's lanes: order, one batch in flight, batches under load, and what a failure takes with it."""

import asyncio
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from edge.log import LogAway
from edge.log.lanes import BATCH_BYTES_MAX, Lanes
from tests.support.waiting import Acks, until


class Broker:
    """Takes batches: keeps what it was sent, holds or fails what it is told to."""

    def __init__(self, fails=()):
        self.batches = []
        self.log = defaultdict(list)
        self.in_flight = defaultdict(int)
        self.in_flight_max = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._fails = list(fails)

    async def send(self, partition, batch):
        """Publish a batch, as a producer would."""
        self.in_flight[partition] += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight[partition])
        await self.gate.wait()
        await asyncio.sleep(0)
        self.in_flight[partition] -= 1
        self.batches.append([item.value for item in batch])
        if self._fails and self._fails.pop(0):
            raise LogAway("told to fail")
        base = len(self.log[partition])
        self.log[partition] += [item.value for item in batch]
        return base


async def test_what_comes_while_a_batch_is_in_flight_travels_together():
    """An idle lane sends at once; under load one batch is in flight and everything else gathers behind it."""
    broker, acks = Broker(), Acks()
    lanes = Lanes(broker.send, gather_s=0)
    broker.gate.clear()
    acks.append(lanes, 0, b"k", [b"first"], "first")
    await asyncio.sleep(0)
    for name in ("second", "third", "fourth"):
        acks.append(lanes, 0, b"k", [name.encode()], name)
    broker.gate.set()
    await lanes.drain()
    assert broker.batches == [[b"first"], [b"second", b"third", b"fourth"]]
    assert acks.acked == [("first", 0), ("second", 1), ("third", 2), ("fourth", 3)]


async def test_partitions_do_not_wait_for_one_another():
    """A lane that is stuck holds no other lane back."""
    broker, acks = Broker(), Acks()
    stuck = asyncio.Event()

    async def send(partition, batch):
        if partition == 0:
            await stuck.wait()
        return await broker.send(partition, batch)

    lanes = Lanes(send, gather_s=0)
    acks.append(lanes, 0, b"a", [b"stuck"], "stuck")
    acks.append(lanes, 1, b"b", [b"free"], "free")
    await until(lambda: acks.acked)
    assert acks.names == ["free"]
    stuck.set()
    await lanes.drain()
    assert acks.names == ["free", "stuck"]


async def test_batches_stay_below_the_limit():
    """A batch never grows above what the broker takes in one request, and nothing is left out."""
    broker, acks = Broker(), Acks()
    lanes = Lanes(broker.send, gather_s=0)
    for number in range(7):
        acks.append(lanes, 0, b"k", [bytes(400_000)], number)
    await lanes.drain()
    assert [len(batch) for batch in broker.batches] == [2, 2, 2, 1]
    assert all(sum(map(len, batch)) <= BATCH_BYTES_MAX for batch in broker.batches)
    assert acks.names == list(range(7))


async def test_a_failure_takes_what_waits_behind_it_under_its_key_and_nothing_else():
    """Behind a failed batch nothing of its keys is sent, another key's record is, and so is what comes afterwards."""
    broker, acks = Broker(fails=[True]), Acks()
    lanes = Lanes(broker.send, gather_s=0)
    broker.gate.clear()
    acks.append(lanes, 0, b"k", [b"k0"], "k0")
    await asyncio.sleep(0)
    acks.append(lanes, 0, b"k", [b"k1"], "k1")
    acks.append(lanes, 0, b"other", [b"o0"], "o0")
    acks.append(lanes, 0, b"k", [b"k2"], "k2")
    broker.gate.set()
    await lanes.drain()
    assert broker.log[0] == [b"o0"]
    assert [name for name, _ in acks.failed] == ["k0", "k1", "k2"]
    acks.append(lanes, 0, b"k", [b"k3"], "k3")
    await lanes.drain()
    assert broker.log[0] == [b"o0", b"k3"]
    assert acks.names == ["o0", "k3"]


async def test_a_record_whose_first_part_failed_is_not_acknowledged_by_its_last():
    """Parts that travel in two batches are one record: it fails as a whole, told once."""
    broker, told = Broker(fails=[True]), []
    lanes = Lanes(broker.send, gather_s=0)
    parts = [bytes(600_000), bytes(600_000)]
    lanes.append(0, b"k", parts, told.append, told.append)
    await lanes.drain()
    assert [str(said) for said in told] == ["told to fail"]
    assert broker.log[0] == []


async def test_a_callback_may_append():
    """What a writer appends when it is told of a failure is sent behind it: the end of its stream."""
    broker = Broker(fails=[True])
    lanes = Lanes(broker.send, gather_s=0)
    ends = Acks()
    broker.gate.clear()
    lanes.append(0, b"k", [b"lost"], lambda _: None, lambda _: ends.append(lanes, 0, b"k", [b"end"], "end"))
    await asyncio.sleep(0)
    lanes.append(0, b"k", [b"behind"], lambda _: None, lambda _: None)
    broker.gate.set()
    await lanes.drain()
    assert broker.log[0] == [b"end"]
    assert ends.names == ["end"]


NEVER_S = 3600.0


async def test_what_is_waited_for_leaves_without_the_tick_and_takes_the_others_along():
    """Under load a record waits for the tick; one in a hurry does not, and whatever waited leaves with it."""
    broker, acks = Broker(), Acks()
    lanes = Lanes(broker.send, gather_s=NEVER_S)
    acks.append(lanes, 0, b"a", [b"first"], "first")
    await until(lambda: acks.acked)
    acks.append(lanes, 0, b"a", [b"waits"], "waits")
    acks.append(lanes, 1, b"b", [b"waits too"], "waits too")
    for _ in range(5):
        await asyncio.sleep(0)
    assert broker.batches == [[b"first"]]
    acks.append(lanes, 0, b"a", [b"in a hurry"], "in a hurry")
    lanes.hurry(0)
    await lanes.drain()
    assert sorted(broker.batches) == [[b"first"], [b"waits", b"in a hurry"], [b"waits too"]]


async def test_a_hurry_overtakes_nothing_and_lasts_for_what_was_there():
    """Behind a batch in flight it waits for that one's outcome; what is appended after it left waits for the tick again."""
    broker, acks = Broker(), Acks()
    lanes = Lanes(broker.send, gather_s=NEVER_S)
    broker.gate.clear()
    acks.append(lanes, 0, b"a", [b"first"], "first")
    await until(lambda: broker.in_flight[0])
    acks.append(lanes, 0, b"a", [b"in a hurry"], "in a hurry")
    lanes.hurry(0)
    lanes.hurry(1)
    await asyncio.sleep(0)
    assert broker.in_flight_max == 1
    broker.gate.set()
    await until(lambda: len(acks.acked) == 2)
    for partition in (0, 1):
        acks.append(lanes, partition, b"a", [b"later"], "later")
    for _ in range(5):
        await asyncio.sleep(0)
    assert broker.batches == [[b"first"], [b"in a hurry"]]
    lanes.hurry(1)
    await lanes.drain()
    assert broker.batches[2:] == [[b"later"], [b"later"]]


async def test_two_ticks_never_run_at_once():
    """A tick that was struck early is over: its timer does not cut the next one short."""
    broker, acks = Broker(), Acks()
    lanes, loop = Lanes(broker.send, gather_s=NEVER_S), asyncio.get_running_loop()
    timers = []
    call_later = loop.call_later
    loop.call_later = lambda *args: timers.append(call_later(*args)) or timers[-1]
    try:
        for name in ("first", "second", "third"):
            acks.append(lanes, 0, b"a", [name.encode()], name)
            for _ in range(3):
                await asyncio.sleep(0)
            lanes.hurry(0)
            await lanes.drain()
    finally:
        del loop.call_later
    assert [timer.cancelled() for timer in timers] == [True, True]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from([b"a", b"b"]), st.integers(1, 3)), max_size=30),
    st.lists(st.booleans(), max_size=12),
)
def test_each_record_is_settled_once_in_order_and_sent_at_the_most_once(appends, fails):
    """Whatever fails: one outcome a record, acknowledgements in log order at the right offsets, nothing sent twice."""

    async def run():
        broker = Broker(fails)
        outcomes, acked = defaultdict(list), defaultdict(list)
        lanes = Lanes(broker.send, gather_s=0)
        for number, (partition, key, parts) in enumerate(appends):
            values = [b"%d.%d" % (number, part) for part in range(parts)]
            lanes.append(
                partition,
                key,
                values,
                lambda offset, n=number, p=partition: (
                    outcomes[n].append("ack"),
                    acked[p].append((n, offset)),
                ),
                lambda _, n=number: outcomes[n].append("fail"),
            )
            if number % 3 == 0:
                await asyncio.sleep(0)
        await lanes.drain()
        return broker, outcomes, acked

    broker, outcomes, acked = asyncio.run(run())
    assert all(len(said) == 1 for said in outcomes.values())
    assert len(outcomes) == len(appends)
    assert broker.in_flight_max <= 1
    sent = [value for batch in broker.batches for value in batch]
    assert len(sent) == len(set(sent))
    for partition, found in acked.items():
        assert found == sorted(found)
        for number, offset in found:
            parts = appends[number][2]
            whole = [b"%d.%d" % (number, part) for part in range(parts)]
            assert broker.log[partition][offset - parts + 1 : offset + 1] == whole
