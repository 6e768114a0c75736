"""The two reading passes over raw FetchRequests: the tail at the end, the catch-up from below.

One tail request to each broker covers all of its partitions that have a reader at their end; it waits there, so an idle
edge costs nothing. The catch-up pass reads for whoever stands below, without waiting, and one range ahead of who has not come
back for the last. Both hand what they fetched to ``PartitionReaders``; a reader passes from one to the other by its position,
and what lies before the end is not fetched by both. FetchRequest is
aiokafka's internal API: the version is pinned and the contract suite proves it (a consumer per replay costs 100 times
as much, see docs/decisions.md).

Before: ``passes``. After: ``kafka`` owns it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from typing import Any

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from edge.log import LogAway, OffsetGone
from edge.log.passes import Fetched, KeyReader, PartitionReaders

TAIL_WAIT_MS = 250
CATCH_UP_WAIT_MS = 5
FETCH_BYTES = 256 * 1024
"""Of a reader's first range: its first event need not wait for more, and who only looks at a record takes no more."""
GROWN = 2
"""So often each further range is twice as large: a request costs half a millisecond of CPU, whatever it brings."""
ANSWER_BYTES = 8 * FETCH_BYTES
"""Of one answer of a broker, whatever its partitions want: beyond it they take turns."""
LATEST_S = 0.25
"""So long a fetched range serves who comes for it as well: a resume looks at its cursor's record, then reads on from it."""
RETRY_S = 0.1
LOOK_AGAIN_S = 0.05
"""While one broker lets us wait, so often it is looked what is wanted of the others."""
_OUT_OF_RANGE = 1
_EARLIEST = -2
log = structlog.get_logger()


class Fetcher:
    """Serves the readers of one topic.

    Args:
        tail: a connected client; two of them, since a broker answers one connection in order and the tail waits there.
        catch_up: the other one.
        topic: the events topic.

    """

    def __init__(self, tail: AIOKafkaClient, catch_up: AIOKafkaClient, topic: str) -> None:
        self._clients = {"tail": tail, "catch_up": catch_up}
        self._topic = topic
        self._partitions: defaultdict[int, PartitionReaders] = defaultdict(PartitionReaders)
        self._latest: dict[int, Fetched] = {}
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._broken = False
        self._silent: set[int] = set()
        self._turns = dict.fromkeys(self._clients, 0)

    def start(self) -> None:
        """Begin both passes."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._tail()), loop.create_task(self._catch_up())]
        for task in self._tasks:
            task.add_done_callback(self._over)

    @property
    def broken(self) -> bool:
        """Whether a pass has ended by a bug: this edge cannot read the log any more."""
        return self._broken

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = True
            log.error("a reading pass ended", error=repr(error), exc_info=error)
            for readers in self._partitions.values():
                readers.fail(LogAway("this edge cannot read the log any more; another one can"))

    async def stop(self) -> None:
        """End both passes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reader(self, partition: int, key: bytes, offset: int, *, every: bool) -> KeyReader:
        """A new reader, served from now on."""
        found = KeyReader(key, offset, every=every, on_change=lambda r: self._on_change(partition, r))
        self._partitions[partition].readers.add(found)
        latest = self._latest.get(partition)
        if latest is not None and latest.start <= offset < latest.end:
            self._partitions[partition].offer(latest, only=found)
        self._changed.set()
        return found

    def _on_change(self, partition: int, reader: KeyReader) -> None:
        if reader.closed:
            readers = self._partitions[partition]
            readers.readers.discard(reader)
            if not readers.readers:
                readers.tail_from = None
        self._changed.set()

    async def _tail(self) -> None:
        def wanted(readers: PartitionReaders) -> int | None:
            at_end = [reader.position for reader in readers.readers if reader.caught_up]
            if not at_end:
                if readers.tail_from is not None:
                    readers.tail_from = None  # who is behind is the catch-up's: both would fetch the same
                    self._changed.set()
                return None
            highest = max(at_end)
            if readers.tail_from is None or highest > readers.tail_from:
                readers.tail_from = highest
            return readers.tail_from

        def taken(number: int, fetched: Fetched) -> None:
            readers = self._partitions[number]
            if readers.tail_from == fetched.start:
                readers.tail_from = fetched.end
            readers.offer(fetched)

        await self._pass("tail", TAIL_WAIT_MS, wanted, taken)

    async def _catch_up(self) -> None:
        def taken(number: int, fetched: Fetched) -> None:
            self._partitions[number].offer(fetched)
            self._keep(number, fetched)
            self._changed.set()  # who came to the end is the tail's from now on

        await self._pass("catch_up", CATCH_UP_WAIT_MS, PartitionReaders.wanted, taken)

    async def _pass(
        self,
        which: str,
        wait_ms: int,
        wanted: Callable[[PartitionReaders], int | None],
        taken: Callable[[int, Fetched], None],
    ) -> None:
        """Ask each broker for what its partitions want; a broker that does not answer holds up none of the others."""
        client, asking = self._clients[which], dict[int, asyncio.Task[list[tuple[int, Fetched]]]]()
        try:
            while True:
                by_node, leaderless = self._wanted(client, wanted, asking)
                for node, places in by_node.items():
                    asked = self._in_turn(which, places)
                    asking[node] = asyncio.create_task(self._asked(client, node, asked, wait_ms))
                if not asking:
                    await (self._again(client) if leaderless else self._news())
                    continue
                await asyncio.wait(asking.values(), timeout=LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
                for node in [node for node, task in asking.items() if task.done()]:
                    for number, fetched in asking.pop(node).result():
                        taken(number, fetched)
        finally:
            for task in asking.values():
                task.cancel()
            await asyncio.gather(*asking.values(), return_exceptions=True)

    async def _news(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wanted(
        self, client: AIOKafkaClient, wanted: Callable[[PartitionReaders], int | None], busy: Container[int]
    ) -> tuple[dict[int, list[tuple[int, int, int]]], bool]:
        """What is to be asked of each broker that is not being asked; and whether something wants a leader."""
        by_node, leaderless = defaultdict[int, list[tuple[int, int, int]]](list), False
        for number, readers in self._partitions.items():
            leader = client.cluster.leader_for_partition(TopicPartition(self._topic, number))
            if leader is not None and leader in busy:
                continue
            offset = wanted(readers)
            if offset is None:
                continue
            if leader is None or leader < 0:
                leaderless = True
            else:
                by_node[leader].append((number, offset, FETCH_BYTES << min(readers.ranges, GROWN)))
        return by_node, leaderless

    def _in_turn(self, which: str, asked: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Only the first with news may answer a record above its share of bytes: they take turns."""
        self._turns[which] += 1
        turn = self._turns[which] % len(asked)
        return asked[turn:] + asked[:turn]

    async def _asked(
        self, client: AIOKafkaClient, node: int, asked: list[tuple[int, int, int]], wait_ms: int
    ) -> list[tuple[int, Fetched]]:
        found = await self._ask(client, node, asked, wait_ms)
        if found is None:
            await self._again(client)
        return found or []

    def _keep(self, number: int, fetched: Fetched) -> None:
        """For a moment. It never says that the log had nothing behind it: that was before the next reader came."""
        if fetched.records:
            kept = self._latest[number] = fetched._replace(high_watermark=fetched.end + 1)
            asyncio.get_running_loop().call_later(LATEST_S, self._outdated, number, kept)

    def _outdated(self, number: int, kept: Fetched) -> None:
        if self._latest.get(number) is kept:
            del self._latest[number]

    async def _again(self, client: AIOKafkaClient) -> None:
        client.force_metadata_update()
        await asyncio.sleep(
            RETRY_S
        )  # a leader is being elected or the broker is away: ask again at this pace

    async def _ask(
        self, client: AIOKafkaClient, node: int, asked: list[tuple[int, int, int]], wait_ms: int
    ) -> list[tuple[int, Fetched]] | None:
        request = FetchRequest(wait_ms, 1, ANSWER_BYTES, 0, [(self._topic, asked)])
        try:
            response = await client.send(node, request)
            out, refused = self._take(response, {number: offset for number, offset, _ in asked})
            for number, offset in refused:
                await self._out_of_range(client, node, number, offset)
        except (KafkaError, OSError) as error:
            if node not in self._silent:
                self._silent.add(node)
                log.warning("the log gives nothing, asking again until it does", node=node, error=repr(error))
            return None
        if node in self._silent:
            self._silent.discard(node)
            log.info("the log gives records again", node=node)
        return out

    def _take(
        self, response: Any, offsets: dict[int, int]
    ) -> tuple[list[tuple[int, Fetched]], list[tuple[int, int]]]:
        """What was fetched, and the partitions whose offset the log does not hold."""
        out, refused, trouble = [], [], None
        for _, partitions in response.topics:
            for number, code, high_watermark, *rest in partitions:
                if code == _OUT_OF_RANGE:
                    refused.append((number, offsets[number]))
                elif code:
                    trouble = for_code(code)(f"partition {number}")
                else:
                    out.append((number, decode(offsets[number], high_watermark, rest[-1])))
        if trouble is not None and not out:  # beside others that answer, the next metadata finds its leader
            raise trouble
        return out, refused

    async def _out_of_range(self, client: AIOKafkaClient, node: int, number: int, offset: int) -> None:
        """Fail the readers below the first offset; those at an offset above the end too, and nobody between."""
        response = await client.send(node, OffsetRequest(-1, 0, [(self._topic, [(number, _EARLIEST)])]))
        answer = next(p for _, partitions in response.topics for p in partitions)
        if answer[1]:
            raise for_code(answer[1])(f"partition {number}")
        first = int(answer[-1][0] if isinstance(answer[-1], list | tuple) else answer[-1])
        readers = self._partitions[number]
        self._latest.pop(number, None)
        readers.fail(OffsetGone(first), below=first)
        if offset >= first:
            readers.fail(OffsetGone(first), above=offset - 1)
        readers.tail_from = None


def decode(start: int, high_watermark: int, message_set: Any) -> Fetched:
    """The records of a fetched message set; the first batch may begin below ``start``, the last may be cut."""
    records: list[tuple[int, int, bytes | None, bytes | None]] = []
    end = start
    batches = MemoryRecords(bytes(message_set or b""))
    while batches.has_next():
        batch = batches.next_batch()
        if batch is None:
            break
        end = max(end, batch.next_offset)
        if not batch.is_control_batch:
            inside = batch if batch.base_offset >= start else _from(batch, start)
            records += [(r.offset, r.timestamp, r.key, r.value) for r in inside]
    return Fetched(start, end, high_watermark, records)


def _from(batch: Iterable[Any], start: int) -> Iterable[Any]:
    return (record for record in batch if record.offset >= start)
