"""Idempotency-Key: of several calls with one key and one body, on any edges, one is sent to a provider.

The order of things: ``message_start`` is acknowledged, then a claim is appended, then the claims topic is read back up to
it. The first claim in log order wins; the others' generations end ``superseded`` before any attempt, and their calls are
answered with the winner's. A claim is void if its generation ended in an ``error`` before any content, or if it is older
than a day by the log's own times; one whose generation has no attempt yet is not decided, and is waited for. Since an
attempt begins only after that, no two generations of one key ever have one at the same time.

What memory already knows is not claimed again. Each wait here is bounded by ``bound_s``: within it an edge that falls
silent cannot have been taken for dead. Before: ``routes``, ``claims``. After: ``service``.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from edge.dialects import BadRequest, ClientRequest, Dialect
from edge.idempotency.claims import Claim, Claims, key_of
from edge.log import LogAway, OffsetGone
from edge.reading.decode import whole_event
from edge.recorder import LOG_UNAVAILABLE
from edge.registry import Entry
from schemas.errors import TokentrailError
from schemas.events import Kind, LogEvent
from schemas.parts import Joiner
from schemas.records import ClaimRecord
from schemas.settings import ApiKey

if TYPE_CHECKING:
    from edge.service import EdgeService

KEY_CHARS_MAX = 255
"""What other services that know the header take, too; a UUID has 36."""
_UNDECIDED = "an earlier call with this Idempotency-Key is only beginning; its answer is there in a moment"
_NOT_FOUND = "the log does not show what became of an earlier call with this Idempotency-Key"


class Conflict(TokentrailError):
    """The key stands for a call with another body."""


class Asked(NamedTuple):
    """What a call asks to be done once: the key and the body, both hashed."""

    key: str
    body_hash: str


class Fate(Enum):
    """What became of a claim's generation."""

    UNDECIDED = "undecided"  # no attempt yet
    VOID = "void"  # an error before any content: for good
    STANDS = "stands"


def asked_of(given: Iterable[str], tenant: str, dialect: str, body: Mapping[str, Any]) -> Asked | None:
    """The key of a call's ``Idempotency-Key`` headers with the hash of what it asks; None without the header."""
    keys = list(given)
    if not keys:
        return None
    if len(keys) > 1 or not 0 < len(keys[0]) <= KEY_CHARS_MAX:
        raise BadRequest(f"send one Idempotency-Key, of 1 to {KEY_CHARS_MAX} characters")
    said = dialect.encode() + b"\0" + orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return Asked(key_of(tenant, keys[0]), hashlib.sha256(said).hexdigest())


class Once:
    """Decides which generation a key stands for."""

    def __init__(self, service: "EdgeService") -> None:
        settings = service.settings
        self._service = service
        metrics = service.metrics
        self.claims = Claims(settings.limit.claims_max, metrics.claims_forgotten.inc)
        metrics.claims.set_function(lambda: len(self.claims))
        self.bound_s = min(settings.log.start_ack_s, settings.pipeline.orphan_after_s / 4)
        self._locks: dict[str, asyncio.Lock] = {}
        self._calls: Counter[str] = Counter()

    async def begin(
        self,
        caller: ApiKey,
        dialect: Dialect,
        request: ClientRequest,
        headers: Mapping[str, str],
        asked: Asked,
    ) -> Entry | Claim:
        """A generation that begins now, or the claim that stands for the key.

        Raises Conflict, and what ``EdgeService.begin`` raises.
        """
        answer = "refused"
        try:
            found = await self._begin(caller, dialect, request, headers, asked)
            answer = "replayed" if isinstance(found, Claim) else "begun"
        except Conflict:
            answer = "conflict"
            raise
        finally:
            self._service.metrics.once.labels(answer).inc()
        return found

    async def _begin(
        self,
        caller: ApiKey,
        dialect: Dialect,
        request: ClientRequest,
        headers: Mapping[str, str],
        asked: Asked,
    ) -> Entry | Claim:
        async with self._turn(asked.key):
            stands = await self._bounded(self._known(asked))
            if stands is not None:
                return _same(stands, asked)
            entry = await self._service.enter(caller, dialect, request, headers, asked.key)
            try:
                stands = await self._bounded(self._claimed(entry, asked))
            except BaseException:
                self._service.end_unbegun(entry, LOG_UNAVAILABLE)
                raise
            if stands is None:
                await self._service.launch(entry)
                return entry
            self._service.end_unbegun(entry, "superseded", stands.generation_id)
            return _same(stands, asked)

    async def _bounded(self, work: Awaitable[Claim | None]) -> Claim | None:
        try:
            async with asyncio.timeout(self.bound_s):
                return await work
        except TimeoutError as error:
            raise LogAway(_UNDECIDED) from error

    async def _known(self, asked: Asked) -> Claim | None:
        """The claim that stands as far as memory goes; none that may be a day old by the log's clock."""
        skew_ms = self._service.settings.resume.skew_s * 1000
        now_ms = self._service.clock.wall_us() // 1000
        return await self._first(asked.key, self.claims.standing(asked.key, now_ms + skew_ms))

    async def _claimed(self, entry: Entry, asked: Asked) -> Claim | None:
        """Claim, read back, and the earlier claim that stands; None where this one is the first."""
        service, identity = self._service, entry.generation.identity
        record = ClaimRecord(
            claim_key=asked.key,
            tenant=identity.tenant,
            generation_id=identity.generation_id,
            body_hash=asked.body_hash,
            edge_id=service.settings.edge.id,
            wall_us=service.clock.wall_us(),
        )
        place = await service.log.claim(asked.key.encode(), service.codec.encode(record))
        entry.driver.holdings.claimed_us = entry.driver.recorder.elapsed_us()
        await self.claims.reached(*place)
        everyones = self.claims.standing(asked.key, 0)
        own = next((c for c in everyones if c.generation_id == identity.generation_id), None)
        if own is None:
            raise LogAway("the claim was forgotten before it was decided (limit.claims_max)")
        return await self._first(
            asked.key, [c for c in self.claims.standing(asked.key, own.at_ms) if c.offset < own.offset]
        )

    async def _first(self, key: str, claims: list[Claim]) -> Claim | None:
        for claim in claims:
            if await self._fate(claim.generation_id) is Fate.STANDS:
                return claim
            self.claims.forget(key, claim)
        return None

    async def _fate(self, generation_id: str) -> Fate:
        """What the log says of a generation; waits until it is decided.

        Of one that is not found nobody can say that it never ran: LogAway, rather than a second one.
        """
        service = self._service
        local = service.registry.get(generation_id)
        if local is not None and local.start_offset is not None:
            partition, offset = local.identity.partition, local.start_offset
        else:
            located = await service.desk.locate(generation_id)
            if located is None:
                raise LogAway(_NOT_FOUND)
            partition, offset = located.partition, located.offset
        reader = service.log.reader(partition, generation_id.encode(), offset)
        joiner, attempted = Joiner(service.codec), False
        try:
            while True:
                progress = await reader.read()
                for raw in progress.records:
                    event = await whole_event(service.log, service.codec, joiner, raw.value, raw.offset)
                    fate = Fate.UNDECIDED if event is None else _says(event)
                    if fate is not Fate.UNDECIDED:
                        return fate
                    attempted = attempted or (event is not None and event.kind is Kind.ATTEMPT_START)
                if attempted and progress.caught_up:
                    return Fate.STANDS
        except OffsetGone as gone:
            raise LogAway(_NOT_FOUND) from gone
        finally:
            reader.close()

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[None]:
        """One call of a key at a time on this edge: the second finds what the first has claimed. Raises LogAway."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._calls[key] += 1
        try:
            try:
                async with asyncio.timeout(self.bound_s):
                    await lock.acquire()
            except TimeoutError as error:
                raise LogAway(_UNDECIDED) from error
            try:
                yield
            finally:
                lock.release()
        finally:
            self._calls[key] -= 1
            if not self._calls[key]:
                del self._calls[key], self._locks[key]


def _says(event: LogEvent) -> Fate:
    """What one record decides: content or a proper end stands for good, an error before them is void for good."""
    if event.has_content or event.kind is Kind.MESSAGE_END:
        return Fate.STANDS
    return Fate.VOID if event.kind is Kind.ERROR else Fate.UNDECIDED


def _same(claim: Claim, asked: Asked) -> Claim:
    if claim.body_hash.hex() != asked.body_hash:
        raise Conflict("this Idempotency-Key was used for a call with another body")
    return claim
