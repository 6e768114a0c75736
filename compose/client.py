"""What compose says over HTTP: to edges as any client would, to ClickHouse's ping, to a provider's health.

The only file of compose's own processes with aiohttp (the simulator is a program of its own). The SSE reader here is
deliberately not the edge's: the demo and the doctor judge an edge, so they do not share its code.
Invariant: nobody answering is ``Unreachable`` with what to do, never a bare socket error.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self

import aiohttp

from schemas.errors import TokentrailError

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 2.0
READ_TIMEOUT_S = 60.0
"""Silence on a stream after which it is given up: four heartbeats."""
LINE_BYTES_MAX = 16 << 20


class Unreachable(TokentrailError):
    """Nobody answers there."""


class StreamBroken(TokentrailError):
    """A stream ended without the end of its body."""


class Answer(NamedTuple):
    """An answer that was read whole. ``body`` is None where it is no JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any
    text: str


class Frame(NamedTuple):
    """One server-sent event, as a WHATWG parser dispatches it."""

    id: str
    event: str
    data: str


class Stream(NamedTuple):
    """An open answer: its head, and its frames as they come. ``answer`` instead of frames where it is no stream."""

    status: int
    headers: Mapping[str, str]
    frames: AsyncIterator[Frame]
    answer: Answer | None


class EdgeClient:
    """Calls to one edge with one API key."""

    def __init__(self, base_url: str, key: str | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One call, its answer read whole, whatever the status."""
        try:
            async with self._open.request(
                method, self.base_url + path, json=body, headers=headers
            ) as response:
                return await _whole(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Stream]:
        """A streamed answer. Leaving the block cuts the connection, wherever the stream stands."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=READ_TIMEOUT_S)
        try:
            response = await self._open.request(
                method, self.base_url + path, json=body, headers=headers, timeout=timeout
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error
        try:
            streams = response.content_type == "text/event-stream"
            answer = None if streams else await _whole(response)
            yield Stream(response.status, response.headers, _frames(response), answer)
        finally:
            response.close()

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use it as `async with`")
        return self._session

    def _unreachable(self, error: BaseException) -> Unreachable:
        return Unreachable(
            f"No edge answers at {self.base_url} ({type(error).__name__}: {error}). Start one with `tokentrail up`, or "
            "name it with --edge."
        )


async def answers_ok(url: str) -> bool:
    """Whether a GET of this URL is answered with 200."""
    timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            return response.status == 200  # noqa: PLR2004 - HTTP's own number
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


async def _whole(response: aiohttp.ClientResponse) -> Answer:
    text = await response.text()
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    return Answer(response.status, response.headers, body, text)


async def _frames(response: aiohttp.ClientResponse) -> AsyncIterator[Frame]:
    """The events of a stream by the WHATWG rules: an event without data is none, an unfinished one is dropped."""
    last_id, event = "", ""
    data: list[str] = []
    async for line in _lines(response):
        if not line:
            if data:
                yield Frame(last_id, event or "message", "\n".join(data))
            event, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id" and "\0" not in value:
            last_id = value


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """Lines without their end; CR, LF and CRLF each end one."""
    rest, after_cr = b"", False
    try:
        async for chunk in response.content.iter_any():
            data = chunk.removeprefix(b"\n") if after_cr else chunk
            after_cr = chunk.endswith(b"\r")
            *lines, rest = (rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                raise StreamBroken(f"a line of more than {LINE_BYTES_MAX} bytes: that is no event stream")
            for line in lines:
                yield line.decode()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise StreamBroken(f"the connection to the edge broke: {type(error).__name__} {error}") from error
