"""The load client: one request, one connection, the answer kept as (arrival, bytes) and read when all is over.

Nothing is parsed while others are measured: a read costs the client two instructions and a list's append. The provider
stamps each chunk with CLOCK_MONOTONIC (`x_sim.sent_ns`), which all processes of a machine share, so the difference is the
chunk's way through whatever stands between.
Before: the rows. After: the sockets.
"""

import asyncio
import gc
import math
import re
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, cast

import orjson

from compose.stack import HOST
from tests.bench.stack import BenchFailed

STAMP = re.compile(rb'"sent_ns":(\d+)\}')
EVENT = b"\ndata: "
EVENT_ID = re.compile(rb"\nid: (\S+)\n")
GENERATION_ID = re.compile(rb"\r\nx-generation-id: (\S+)\r\n", re.IGNORECASE)
CHAT = "/v1/chat/completions"
UNSTAMPED_SHARE_MAX = 0.001
"""A stamp that a transfer's framing cuts in two is not read; more of them missing than this is a fault."""
START_SPREAD_S = 1.0
"""Streams begin one after the other within it: what is measured is that they run, not that they all open at once; and
their chunks fall at different times of an interval."""


class Exchange(asyncio.Protocol):
    """One connection with one request on it.

    Args:
        request: its bytes.
        awaited: settle ``reached`` when so many events came; 0 for never.
        event: how one begins.
    """

    def __init__(self, request: bytes, awaited: int = 0, event: bytes = EVENT) -> None:
        loop = asyncio.get_running_loop()
        self._request = request
        self._awaited = awaited
        self._event = event
        self._tail = b""
        self._transport: asyncio.WriteTransport | None = None
        self.sent_ns = 0
        self.pieces: list[tuple[int, bytes]] = []
        self.reached: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's are of no common class
        self.sent_ns = time.monotonic_ns()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Keep what came."""
        self.pieces.append((time.monotonic_ns(), data))
        if self._awaited > 0:
            seen = self._tail + data
            self._awaited -= seen.count(self._event)
            self._tail = seen[-len(self._event) + 1 :]
            if self._awaited <= 0 and not self.reached.done():
                self.reached.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Whoever waits is told."""
        for future in (self.reached, self.closed):
            if not future.done():
                future.set_result(None)
        del error

    def cut(self) -> None:
        """Close our side now."""
        if self._transport is not None:
            self._transport.close()

    @property
    def whole(self) -> bytes:
        """Head and body as they came."""
        return b"".join(data for _, data in self.pieces)

    def arrivals(self, pattern: re.Pattern[bytes]) -> Iterator[tuple[re.Match[bytes], int]]:
        """Every match with the time (ns) at which its last byte arrived."""
        ends = list(accumulate(len(data) for _, data in self.pieces))
        for match in pattern.finditer(self.whole):
            yield match, self.pieces[bisect_left(ends, match.end())][0]

    def event_arrivals_ns(self) -> list[int]:
        """When each event arrived."""
        return [at_ns for _, at_ns in self.arrivals(re.compile(re.escape(self._event)))]

    def check(self) -> None:
        """Raise BenchFailed unless the answer is a 200."""
        if not self.whole.startswith(b"HTTP/1.1 200 "):
            raise BenchFailed(f"a request was not answered with 200: {self.whole[:400]!r}")


async def exchange(port: int, request: bytes, awaited: int = 0, event: bytes = EVENT) -> Exchange:
    """An open connection with its request sent."""
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(lambda: Exchange(request, awaited, event), HOST, port)
    return protocol


def request_of(
    method: str,
    path: str,
    key: str,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes of a request whose connection ends with its answer."""
    sent = b"" if body is None else orjson.dumps(body)
    lines = [
        f"{method} {path} HTTP/1.1",
        f"host: {HOST}",
        f"authorization: Bearer {key}",
        "connection: close",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(sent)}"]
    return "\r\n".join([*lines, "", ""]).encode() + sent


def chat_request(key: str, **simulate: Any) -> bytes:
    """A streaming chat completion with the simulator's script."""
    body = {
        "model": "sim-steady",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "How fast is this?"}],
        "simulate": {"stamp": True, **simulate},
    }
    return request_of("POST", CHAT, key, body)


class Load(NamedTuple):
    """What came of many streams. Latencies are sorted."""

    chunks: int
    latencies_ms: Sequence[float]
    client_cpu_s: float


@dataclass(frozen=True, slots=True)
class Streams:
    """So many streams at once, each with so many tokens, so far apart."""

    count: int
    tokens: int
    interval_ms: float = 20

    @property
    def stamped(self) -> int:
        """Chunks that carry a stamp: role, tokens, finish, usage."""
        return self.count * (self.tokens + 3)


async def load(port: int, key: str, streams: Streams) -> Load:
    """Run the streams to their end."""
    request = chat_request(key, tokens=streams.tokens, interval_ms=streams.interval_ms, ttft_ms=10)

    async def one(nth: int) -> Exchange:
        await asyncio.sleep(START_SPREAD_S * nth / streams.count)
        running = await exchange(port, request)
        await running.closed
        return running

    gc.disable()  # a walk over all that was kept would be measured as latency
    try:
        cpu_s = time.process_time()
        done = await asyncio.gather(*(one(nth) for nth in range(streams.count)))
        cpu_s = time.process_time() - cpu_s
    finally:
        gc.enable()
    latencies_ms = []
    for each in done:
        each.check()
        latencies_ms += [(at_ns - int(match[1])) / 1e6 for match, at_ns in each.arrivals(STAMP)]
        if b"\ndata: [DONE]\n" not in each.whole:
            raise BenchFailed(f"a stream ended without its end mark: …{each.whole[-400:]!r}")
    missing = streams.stamped - len(latencies_ms)
    if abs(missing) > UNSTAMPED_SHARE_MAX * streams.stamped:
        raise BenchFailed(f"{streams.stamped} chunks were expected, {len(latencies_ms)} came")
    return Load(len(latencies_ms), sorted(latencies_ms), cpu_s)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the sorted values does not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
