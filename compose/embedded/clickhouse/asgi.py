"""The plain HTTP side of the server: bodies in, whole answers out, and how an error is written into an open answer.

Purpose: what any ASGI application must do, apart from what ClickHouse means. Invariants: a body is complete or it is
nothing; it has a limit, which is checked before it is read where the client says its length.

Before it in the flow: uvicorn (``serving``). After it: ``server``.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from compose.embedded.clickhouse import errors
from compose.embedded.clickhouse.errors import QueryError

# Larger inserts belong into several requests; a body is held in memory twice (packed and unpacked).
REQUEST_BYTES_MAX = 256 * 1024 * 1024

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def read_body(receive: Receive, headers: Mapping[str, str]) -> bytes | None:
    """Return the whole body, None where the client left before its end; raise `QueryError` where it is too large."""
    too_large = QueryError.refusal(
        errors.QUERY_IS_TOO_LARGE, f"The request is larger than {REQUEST_BYTES_MAX} bytes: send it in parts"
    )
    if int(headers.get("content-length") or 0) > REQUEST_BYTES_MAX:
        raise too_large
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > REQUEST_BYTES_MAX:
            raise too_large
        if not message.get("more_body"):
            return b"".join(parts)


async def wait_until_gone(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def respond(
    send: Send, status: HTTPStatus, headers: Mapping[str, str], body: bytes, method: str
) -> None:
    """Send a whole response."""
    with_length = {**headers, "Content-Length": str(len(body))}
    await send({"type": "http.response.start", "status": status, "headers": raw_headers(with_length)})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


def raw_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return headers as ASGI takes them."""
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]


def late_error(text: str, tag: str) -> bytes:
    """Return an error as ClickHouse (≥ 25.11) writes it into a stream that has begun."""
    message = text.encode("utf-8", "replace")
    end = f"\n{len(message)} {tag}\r\n__exception__\r\n"
    return f"\r\n__exception__\r\n{tag}\r\n".encode() + message + end.encode()
