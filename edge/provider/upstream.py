"""The provider's HTTP. The only file of the edge that knows aiohttp.

A call gives a response whose bytes are read one piece at a time; closing it closes the socket, which is how a cancel
reaches the provider. Errors say how far the call came, since that decides what it can have cost. Before: ``policy``.
After: ``driver``.
"""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from edge.provider.encodings import Decoder, Undecodable, decoder_of
from edge.provider.masking import NO_MASK, Mask, mask_of
from schemas.errors import TokentrailError
from schemas.events import Dispatch
from schemas.settings import Provider

ERROR_BODY_BYTES = 65_536
"""Of an answer that is no stream, so much is read: enough for any error message."""
DETAIL_CHARS_MAX = 200
TURN_BYTES = 8_192
"""About 50 events of a provider that sends all at once: 3 ms, in which nobody else is served."""
WHOLE_BYTES_MAX = 262_144
"""A larger request is not given to the socket at once; above 1 MiB the library warns of it."""
CONNECTIONS_MAX = 0
"""No limit of our own: every running generation has its socket, and ``limit.generations`` bounds those."""


class UpstreamFailed(TokentrailError):
    """The call ended without a usable answer; ``code`` where that is something else than a lost connection."""

    def __init__(self, dispatch: Dispatch, detail: str, code: str | None = None) -> None:
        super().__init__(detail)
        self.dispatch = dispatch
        self.code = code


def words_of(error: BaseException, mask: Mask = NO_MASK) -> str:
    """What an error of a call may say to a client and in the log: no address and no header, which hold our key.

    A head that is none is quoted in its error, and the provider may have said the key there.
    """
    if isinstance(error, aiohttp.ClientResponseError):
        said: str | None = error.message
    elif isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        said = os.strerror(error.errno)  # its own text may name the address
    else:
        said = None
    name = type(error).__name__
    return f"{name}: {' '.join(mask.text(said).split())[:DETAIL_CHARS_MAX]}" if said else name


def _written(body: dict[str, Any]) -> bytes | io.BytesIO:
    """A request's body; a large one is written in pieces, between which everybody else has his turn."""
    data = orjson.dumps(body)
    return data if len(data) <= WHOLE_BYTES_MAX else io.BytesIO(data)


def turn_of(data: bytes) -> tuple[bytes, bytes]:
    """What is read in one turn, whole frames where it can be, and the rest."""
    if len(data) <= TURN_BYTES:
        return data, b""
    at = data.rfind(b"\n\n", 0, TURN_BYTES) + 2
    if at < 2:  # noqa: PLR2004 - no frame ends here
        at = TURN_BYTES
    return data[:at], data[at:]


class Answer:
    """A response head, and its body to come."""

    def __init__(
        self, response: aiohttp.ClientResponse, draining: "set[asyncio.Task[None]]", mask: Mask = NO_MASK
    ) -> None:
        self._response = response
        self._mask = mask
        self._draining = draining
        self.detached = False
        self.status = response.status
        self.content_type = response.content_type
        self.headers: Mapping[str, str] = response.headers
        self._encoding = mask.text(", ".join(response.headers.getall("content-encoding", ())))
        self._decoder: Decoder | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._rest = b""

    async def read(self) -> bytes:
        """The next bytes, decoded; b"" at a proper end; UpstreamFailed where the connection or the encoding broke."""
        if not self._encoding:
            return await self._read()
        try:
            self._decoder = self._decoder or decoder_of(self._encoding)
            if self._decoder is None:
                return await self._read()
            while True:
                if piece := next((piece for piece in self._pieces if piece), b""):
                    await asyncio.sleep(
                        0
                    )  # few bytes can stand for many pieces: others have their turn between them
                    return piece
                if not (packed := await self._read()):
                    return b""
                self._pieces = self._decoder.feed(packed)
        except Undecodable as error:
            raise UpstreamFailed(Dispatch.ACCEPTED, str(error), "upstream_protocol") from error

    async def _read(self) -> bytes:
        """What has come, in turns: behind each but the last of them everybody else has theirs."""
        if self._rest:
            await asyncio.sleep(0)
        else:
            try:
                self._rest = await self._response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                raise UpstreamFailed(
                    Dispatch.ACCEPTED, f"the stream broke: {words_of(error, self._mask)}"
                ) from error
        turn, self._rest = turn_of(self._rest)
        return turn

    async def body(self) -> bytes:
        """The beginning of a body that is no stream."""
        parts, size = [], 0
        while size < ERROR_BODY_BYTES:
            piece = await self.read()
            if not piece:
                break
            parts.append(piece)
            size += len(piece)
        return b"".join(parts)[:ERROR_BODY_BYTES]

    def close(self) -> None:
        """Close the socket now."""
        self._response.close()

    def drain_later(self, within_s: float) -> None:
        """The protocol's end mark came: read the body's own end beside, shortly, so that the connection lives on."""
        self.detached = True
        task = asyncio.get_running_loop().create_task(self._drain(within_s))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _drain(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while await self._read():
                    continue
        except (TimeoutError, UpstreamFailed):
            self.close()


class Upstream:
    """The client of all providers."""

    def __init__(self, connect_s: float, head_bytes: int = 65_536) -> None:
        self._head_bytes = head_bytes
        self._timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=connect_s,
            connect=connect_s,
            ceil_threshold=connect_s,  # above it the library would wait up to a second longer
        )
        self._session: aiohttp.ClientSession | None = None
        self._draining: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the connection pool."""
        connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX, ttl_dns_cache=60)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # one jar would tie the calls of all tenants together
            timeout=self._timeout,
            auto_decompress=False,
            trust_env=False,
            max_line_size=self._head_bytes,
            max_field_size=self._head_bytes,
        )

    async def stop(self) -> None:
        """Close every connection."""
        await asyncio.gather(*self._draining, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def call(
        self, provider: Provider, path: str, body: dict[str, Any], headers: Mapping[str, str]
    ) -> AsyncIterator[Answer]:
        """POST the body; leaving the block closes what was not read to its end.

        Raises UpstreamFailed with how far the call came.
        """
        if self._session is None:
            raise UpstreamFailed(Dispatch.NOT_CONNECTED, "the edge is not started")
        mask = mask_of(provider)
        sent = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
        }
        try:
            response = await self._session.post(
                provider.base_url.rstrip("/") + path,
                data=_written(body),
                headers={**sent, **headers},
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UpstreamFailed(
                Dispatch.NOT_CONNECTED, f"cannot connect: {words_of(error, mask)}"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamFailed(Dispatch.SENT, f"no answer: {words_of(error, mask)}") from error
        answer = Answer(response, self._draining, mask)
        try:
            yield answer
        finally:
            if not answer.detached:
                answer.close()
