"""The doctor's checks that make a stream: its ids and headers, a forged cursor, its rows, its counters, a cancel.

Invariant: what is begun here is read to its end or cancelled. Before this file: ``doctor``. After it: ``client``,
``warehouse``.
"""

import asyncio
import time

from compose.asking import message_of
from compose.checks import Red, Skipped
from compose.client import EdgeClient, Frame, Stream
from compose.target import KEY_NAME, Target
from compose.warehouse import query

SHORT_MODEL, LONG_MODEL = "sim-fast", "sim-long"
STORED_WITHIN_S = 20.0
"""A row takes about two seconds on two busy cores; a sink that has to wait tries again every five."""
_FRAMES_BEFORE_CANCEL = 5
_POLL_S = 0.5
_STORED = """
    SELECT (SELECT count() FROM generations_final WHERE generation_id = {id:UUID}) AS generations,
           (SELECT count() FROM events_final WHERE generation_id = {id:UUID}) AS events
"""
METRICS = ("sse_first_token_latency_ms", "sse_last_token_latency_ms", "sse_aborts_total")
_OK, _ACCEPTED, _UNAUTHORIZED, _BAD_REQUEST, _NOT_FOUND = 200, 202, 401, 400, 404


class StreamProbe:
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
        seq, hint, signature = self._frames[len(self._frames) // 2].id.split("-", 2)
        forged = f"{seq}-{hint}-{'A' * len(signature)}"
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


async def metrics(target: Target) -> str:
    """What an edge counts of its streams can be scraped."""
    async with EdgeClient(target.edge) as edge:
        answer = await edge.call("GET", "/metrics")
    if answer.status == _NOT_FOUND:
        raise Skipped("not at this address, as behind a proxy: scrape each edge itself")
    missing = [name for name in METRICS if f"# HELP {name} " not in answer.text]
    if answer.status != _OK or missing:
        raise Red(
            f"{target.edge}/metrics answered {answer.status}, lacking {', '.join(missing) or 'nothing'}",
            "This is no edge of tokentrail, or an old one: see docs/metrics.md.",
        )
    return "first token, last token, aborts"


async def cancels(target: Target, model: str | None) -> str:
    """A long answer ends as cancelled when another edge is asked to end it."""
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
