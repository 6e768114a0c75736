"""The orphan finder's shell: asks for the log's end, lets ``orphans`` decide, appends the verdict.

It works on an otherwise idle log: nothing but its own requests drives it. It never changes the fold's state: what it
appends is read like any other record. Before: ``fold_service``. After: ``orphans`` (the rule), ``kafka``.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from pipeline.fold import FoldPartition
from pipeline.generation import Generation
from pipeline.kafka import FoldConsumer, Message, Producer
from pipeline.orphans import LogWatch, Patience, Probe, Probes, lost, verdict
from pipeline.schema_wait import Waiting
from schemas.codec import Codec
from schemas.errors import Transient
from schemas.events import LogEvent
from schemas.topics import EVENTS

ANSWER_LIMIT_S = 2.0
"""A healthy broker answers in about 1 ms."""

Verdict = tuple[int, Generation, list[LogEvent]]  # partition, whose, what is appended

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Watched:
    """One partition of this worker: its fold, since when its log answers, and what waits for a schema."""

    fold: FoldPartition
    watch: LogWatch
    waiting: Waiting | None = None
    probes: Probes = field(default_factory=Probes)


class Finder:
    """Watches every partition of the worker.

    Args:
        consumer: asks for the log's end.
        producer: appends.
        codec: of the process.
        patience: how long silence is borne.
        partitions: the worker's own, live: another value under a number is another owner's state.
    """

    def __init__(
        self,
        consumer: FoldConsumer,
        producer: Producer,
        codec: Codec,
        patience: Patience,
        partitions: Mapping[int, Watched],
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._codec = codec
        self._patience = patience
        self._partitions = partitions

    async def run(self, stopping: asyncio.Event) -> None:
        """Probe until ``stopping``."""
        every_s = self._patience.probe_every_us / 1e6
        while not stopping.is_set():
            await self._probe(min(ANSWER_LIMIT_S, every_s * 2))
            try:
                async with asyncio.timeout(every_s):
                    await stopping.wait()
            except TimeoutError:
                continue

    async def _probe(self, limit_s: float) -> None:
        watched = dict(self._partitions)
        begun_us = time.monotonic_ns() // 1000
        ends = await self._consumer.ends(watched, limit_s)
        answered_us = time.monotonic_ns() // 1000
        found: list[tuple[int, Generation]] = []
        returned = 0
        for partition, one in watched.items():
            end = ends.get(partition)
            if end is None:
                one.watch.failed()
                continue
            returned += one.watch.answered(answered_us, self._patience)
            if self._partitions.get(partition) is one:
                probe = one.probes.folded(Probe(begun_us, end, one.fold.position))
                if probe is not None:
                    due = lost(one.fold.open, probe, one.watch.returned_us, self._patience)
                    found += [(partition, generation) for generation in due]
        if returned:
            log.info("the log answers again: from now on silence counts", partitions=returned)
        if found:
            # every verdict is made before any is sent: while that is awaited, the fold goes on
            verdicts = [(partition, generation, verdict(generation)) for partition, generation in found]
            await self._append(verdicts, answered_us)

    async def _append(self, verdicts: Sequence[Verdict], now_us: int) -> None:
        messages = [
            Message(
                EVENTS.name, record.generation_id.encode(), self._codec.encode(record), partition=partition
            )
            for partition, _, records in verdicts
            for record in records
        ]
        for _, generation, records in verdicts:
            generation.decided_us = now_us
            kinds = [record.kind.value for record in records]
            log.warning(
                "edge lost",
                generation_id=generation.first.generation_id,
                appended=kinds,
                silent_s=round((now_us - generation.read_us) / 1e6, 1),
            )
        try:
            await self._producer.send_all(messages)
        except Transient as failure:
            for _, generation, _ in verdicts:
                generation.decided_us = None  # decided again, on what the log holds by then
            log.warning("verdicts not appended", count=len(verdicts), error=str(failure))
