"""Checks of a running stack: what must hold before anybody relies on it. Each red one says what to do.

Invariants: a check looks from outside, as a client or an operator would, and leaves nothing running; one that cannot be
made because an earlier one failed is *skipped*, never green. Before this file: ``commands/doctor``. After it:
``client``, ``kafka``, ``warehouse``.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from compose import topics
from compose.asking import message_of
from compose.client import EdgeClient, Frame, Stream, answers_ok
from compose.target import KEY_NAME, Target
from compose.warehouse import pending_migrations, query, version_of
from schemas.errors import TokentrailError
from schemas.topics import TOPICS

HEARTBEAT_MIN_S, HEARTBEAT_MAX_S = 15, 30
"""Below the shortest idle time-out on the way (many proxies: 60 s), above what wakes a phone needlessly."""
SHORT_MODEL, LONG_MODEL = "sim-fast", "sim-long"
CHECK_TIMEOUT_S = 30.0
STORED_WITHIN_S = 20.0
"""A row takes about two seconds on two busy cores; a sink that has to wait tries again every five."""
_FRAMES_BEFORE_CANCEL = 5
_POLL_S = 0.5
_STORED = """
    SELECT (SELECT count() FROM generations_final WHERE generation_id = {id:UUID}) AS generations,
           (SELECT count() FROM events_final WHERE generation_id = {id:UUID}) AS events
"""
_OK, _ACCEPTED, _UNAUTHORIZED, _BAD_REQUEST = 200, 202, 401, 400


class Verdict(StrEnum):
    """What a check found."""

    OK = "ok"
    RED = "red"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table. ``remedy`` is empty where all is well."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


class Red(TokentrailError):
    """A check did not hold: what was found, and what to do."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found)
        self.remedy = remedy


class Skipped(TokentrailError):
    """A check could not be made."""


async def examine(target: Target, model: str | None = None) -> list[Check]:
    """All checks, in the order of the table. ``model``: a cheap one to stream from; default: the simulator's."""
    stream_probe = _StreamProbe(target, model)
    checks: list[tuple[str, Callable[[], Awaitable[str]]]] = [
        ("Kafka reachable, topics right", lambda: _topics(target)),
        ("ClickHouse reachable", lambda: _clickhouse(target)),
        ("migrations applied", lambda: _migrations(target)),
        ("edges ready", lambda: _edges(target)),
        ("heartbeats 15-30 s", lambda: _heartbeats(target)),
        ("time-outs distinct", lambda: _timeouts(target)),
        ("an id on every frame", stream_probe.ids),
        ("buffering, cache, compression off", stream_probe.headers),
        ("forged token refused", stream_probe.forged),
        ("its rows in ClickHouse", stream_probe.stored),
        ("cancel works", lambda: _cancel(target, model)),
    ]
    return [await _judge(name, check) for name, check in checks]


async def _judge(name: str, check: Callable[[], Awaitable[str]]) -> Check:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return Check(name, Verdict.OK, await check())
    except Red as red:
        return Check(name, Verdict.RED, str(red), red.remedy)
    except Skipped as skipped:
        return Check(name, Verdict.SKIPPED, str(skipped))
    except TimeoutError:
        return Check(
            name, Verdict.RED, f"no answer within {CHECK_TIMEOUT_S:.0f} s", "See the logs of the edges."
        )
    except TokentrailError as error:
        found, _, remedy = str(error).partition(". ")
        return Check(name, Verdict.RED, found, remedy)


async def _topics(target: Target) -> str:
    todo = await topics.inspect(target.kafka, window_days=target.settings.resume.window_days)
    if todo.refuse:
        raise Red(f"{todo.refuse[0].name}: {todo.refuse[0].reason}", todo.refuse[0].remedy)
    if not todo.is_clean:
        names = [c.name for c in todo.create] + [a.name for a in todo.alter]
        raise Red(f"missing or different: {', '.join(names)}", "Run `tokentrail topics apply`.")
    return f"{target.kafka}, {len(TOPICS)} topics"


async def _clickhouse(target: Target) -> str:
    version = await asyncio.to_thread(version_of, target.warehouse)
    return f"{target.warehouse.url}, version {version}"


async def _migrations(target: Target) -> str:
    pending = await asyncio.to_thread(pending_migrations, target.warehouse)
    if pending:
        raise Red(
            f"not applied: {', '.join(pending)}",
            "Start the stack again with `tokentrail up`, which applies them.",
        )
    return "all of them"


async def _edges(target: Target) -> str:
    if not target.edges:
        _ = target.edge  # raises NoStack with what to do
    states = await asyncio.gather(*(answers_ok(f"{url}/readyz") for url in target.edges))
    down = [url for url, ready in zip(target.edges, states, strict=True) if not ready]
    if down:
        raise Red(
            f"not ready: {', '.join(down)}", "See logs/edge-*.log; `GET /readyz` says what it waits for."
        )
    return ", ".join(target.edges)


async def _heartbeats(target: Target) -> str:
    heartbeat_s = target.settings.stream.heartbeat_s
    if not HEARTBEAT_MIN_S <= heartbeat_s <= HEARTBEAT_MAX_S:
        raise Red(
            f"stream.heartbeat_s is {heartbeat_s:g}",
            f"Set it between {HEARTBEAT_MIN_S} and {HEARTBEAT_MAX_S}: proxies cut silent connections after 60 s.",
        )
    return f"every {heartbeat_s:g} s"


async def _timeouts(target: Target) -> str:
    settings = target.settings
    layers = (
        ("stream.heartbeat_s", settings.stream.heartbeat_s),
        ("stream.stall_timeout_s", settings.stream.stall_timeout_s),
        ("timeout.decode_s", settings.timeout.decode_s),
        ("timeout.request_s", settings.timeout.request_s),
    )
    for (shorter, shorter_s), (longer, longer_s) in pairwise(layers):
        if shorter_s >= longer_s:
            raise Red(
                f"{shorter} ({shorter_s:g}) is not below {longer} ({longer_s:g})",
                "Each layer must give up before the one around it does, else the reason is lost.",
            )
    return " < ".join(f"{seconds:g} s" for _, seconds in layers)


class _StreamProbe:
    """One short stream, read once and judged by three checks."""

    def __init__(self, target: Target, model: str | None) -> None:
        self._target, self._model = target, model
        self._frames: list[Frame] = []
        self._headers: dict[str, str] = {}

    async def ids(self) -> str:
        """Every frame has an id of its own."""
        await self._read()
        ids = [frame.id for frame in self._frames]
        if not all(ids) or len(set(ids)) != len(ids):
            raise Red(
                f"{len(ids)} frames, {len(set(ids))} different ids",
                "A proxy between here and the edge drops `id:` lines, or this is no edge of tokentrail.",
            )
        return f"{len(ids)} frames, {len(ids)} ids"

    async def headers(self) -> str:
        """Nothing on the way may hold the stream back, keep it, or change it."""
        await self._read()
        wanted = {"x-accel-buffering": "no", "cache-control": "no-cache, no-transform"}
        for name, value in wanted.items():
            if self._headers.get(name, "").lower() != value:
                raise Red(
                    f"{name}: {self._headers.get(name, '(none)')}",
                    f"A proxy must leave `{name}: {value}` alone.",
                )
        if "content-encoding" in self._headers:
            raise Red(
                f"content-encoding: {self._headers['content-encoding']}",
                "Switch compression off for event streams.",
            )
        return "as they must be"

    async def forged(self) -> str:
        """A cursor with another signature gets 401 and no stream."""
        await self._read()
        head, _, signature = self._frames[len(self._frames) // 2].id.rpartition("-")
        forged = f"{head}-{'A' * len(signature)}"
        path = f"/v1/generations/{self._headers['x-generation-id']}/events?dialect=openai.chat"
        async with EdgeClient(self._target.edge, _key(self._target)) as edge:
            answer = await edge.call("GET", path, headers={"Last-Event-ID": forged})
        if answer.status not in (_UNAUTHORIZED, _BAD_REQUEST):
            raise Red(f"answered {answer.status}", "Do not expose this edge: cursors are not checked.")
        return f"answered {answer.status}"

    async def stored(self) -> str:
        """The pipeline has finalized it and the sinks have written it: events and generation."""
        await self._read()
        started_s, ident = time.monotonic(), self._headers["x-generation-id"]
        while True:
            (row,) = await asyncio.to_thread(query, self._target.warehouse, _STORED, {"id": ident})
            took_s = time.monotonic() - started_s
            if row["generations"] and row["events"] >= len(self._frames):
                return f"{row['events']} events and its generation"
            if took_s > STORED_WITHIN_S:
                missing = "its generation" if not row["generations"] else "all of its events"
                raise Red(
                    f"ClickHouse has not {missing} after {took_s:.0f} s",
                    "Something between the log and the tables stands still: see logs/pipeline.log and logs/sinks.log.",
                )
            await asyncio.sleep(_POLL_S)

    async def _read(self) -> None:
        if self._frames:
            return
        async with (
            _edge(self._target) as edge,
            edge.stream(*_chat(self._target, self._model, SHORT_MODEL)) as stream,
        ):
            _must_stream(stream)
            self._headers = {name.lower(): value for name, value in stream.headers.items()}
            self._frames = [frame async for frame in stream.frames]


async def _cancel(target: Target, model: str | None) -> str:
    if model is not None:
        raise Skipped("only made with the simulator's long answer")
    async with _edge(target) as edge, edge.stream(*_chat(target, None, LONG_MODEL)) as stream:
        _must_stream(stream)
        frames: list[Frame] = []
        async for frame in stream.frames:
            frames.append(frame)
            if len(frames) == _FRAMES_BEFORE_CANCEL:
                async with EdgeClient(target.edges[-1], _key(target)) as other:
                    path = f"/v1/cancel/{stream.headers['X-Generation-Id']}"
                    answer = await other.call("POST", path, {"mode": "soft", "reason": "user_abort"})
                if answer.status not in (_OK, _ACCEPTED):
                    raise Red(f"answered {answer.status}: {message_of(answer)}", "See the log of that edge.")
    if "cancelled" not in frames[-1].data + frames[-1].event:
        raise Red(f"the stream ended with {frames[-1].data[:80]}", "See the edge's log.")
    return f"soft, from another edge, after {len(frames)} events"


def _edge(target: Target) -> EdgeClient:
    return EdgeClient(target.edge, _key(target))


def _key(target: Target) -> str:
    if not target.keys:
        raise Skipped(f"no API key: give --key or {KEY_NAME}")
    return target.keys[0]


def _chat(target: Target, model: str | None, simulated: str) -> tuple[str, str, dict[str, object]]:
    chosen = model or (simulated if simulated in target.settings.models else None)
    if chosen is None:
        raise Skipped("no simulator is configured: name a cheap model with --model")
    body = {"model": chosen, "stream": True, "messages": [{"role": "user", "content": "Say a word."}]}
    return "POST", "/v1/chat/completions", body


def _must_stream(stream: Stream) -> None:
    if stream.answer is not None:
        raise Red(f"answered {stream.status}: {message_of(stream.answer)}", "See the edge's log.")
