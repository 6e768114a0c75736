"""ClickHouse's HTTP interface over the engine of this process, as an ASGI application.

Purpose: read the request, run it in a thread, answer as a ClickHouse server does. Invariants: the body is read whole
before anything runs (a client that breaks off inserts nothing); an error before the first byte is an HTTP status with
``X-ClickHouse-Exception-Code``, one after it is written into the stream between ``X-ClickHouse-Exception-Tag``s; a
reader that is gone stops its SELECT, a writer that is gone does not stop its INSERT.

Before it in the flow: ``serving`` (uvicorn), ``asgi``. After it: ``request``, ``sessions``, ``execution``.
"""

import asyncio
import hmac
import json
import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from compose.embedded.clickhouse import errors, formats, wire
from compose.embedded.clickhouse.asgi import (
    Message,
    Receive,
    Send,
    late_error,
    raw_headers,
    read_body,
    respond,
    wait_until_gone,
)
from compose.embedded.clickhouse.engine import Engine
from compose.embedded.clickhouse.errors import QueryError
from compose.embedded.clickhouse.execution import Execution
from compose.embedded.clickhouse.request import HttpRequest, Query, read
from compose.embedded.clickhouse.sessions import Sessions

# Bodies up to this size are understood on the event loop; larger ones would stop it for too long.
_INLINE_BYTES_MAX = 64 * 1024
# Queries that may run at the same time. The engine uses every core for one already; more keeps short ones moving.
_THREADS = 4 * (os.cpu_count() or 1)
_CONTROL_THREADS = 2
SERVER_NAME = "embedded"


@dataclass(frozen=True, slots=True)
class Account:
    """Who may ask: an empty password means that none is needed."""

    user: str = "default"
    password: str = ""

    def admits(self, user: str, password: str) -> bool:
        """Compare in constant time."""
        same_user = hmac.compare_digest(user.encode(), self.user.encode())
        return hmac.compare_digest(password.encode(), self.password.encode()) and same_user


class ClickHouseHttp:
    """The ASGI application."""

    def __init__(self, engine: Engine, account: Account) -> None:
        self._engine = engine
        self._account = account
        self._sessions = Sessions(engine.link)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="query")
        # KILL QUERY must find a thread when every other one is busy with what it kills.
        self._control = ThreadPoolExecutor(_CONTROL_THREADS, thread_name_prefix="control")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request (or the server's start and stop)."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        path, method = scope["path"], scope["method"]
        if path in {"/ping", "/replicas_status"} or (
            path == "/" and method in {"GET", "HEAD"} and not scope["query_string"]
        ):
            await respond(send, HTTPStatus.OK, self._headers("text/html; charset=UTF-8"), b"Ok.\n", method)
            return
        if path not in {"/", "/query"}:
            text = f"There is no handle {path}\n\nUse / or /ping for health checks.\nSend queries with POST (GET reads only).\n"
            await respond(send, HTTPStatus.NOT_FOUND, self._headers("text/plain"), text.encode(), method)
            return
        try:
            body = await read_body(receive, headers)
            if body is None:
                return
            request = HttpRequest(method, scope["query_string"].decode("latin-1"), headers, body)
            await self._answer(request, receive, send)
        except QueryError as error:
            await self._refuse(send, error, method)

    async def _answer(self, request: HttpRequest, receive: Receive, send: Send) -> None:
        """Run the request's query and send its answer; raise `QueryError` only before the first byte."""
        if len(request.body) <= _INLINE_BYTES_MAX:
            query = read(request)
        else:
            query = await asyncio.get_running_loop().run_in_executor(self._control, read, request)
        if not self._account.admits(query.user, query.password):
            raise QueryError.refusal(
                errors.AUTHENTICATION_FAILED,
                f"{query.user}: Authentication failed: password is incorrect, or no such user",
            )
        gone = asyncio.create_task(wait_until_gone(receive))
        try:
            await self._run(query, request.method, gone, send)
        finally:
            gone.cancel()

    async def _run(self, query: Query, method: str, gone: asyncio.Task[None], send: Send) -> None:
        started_ns = time.monotonic_ns()
        execution = Execution(
            query,
            self._sessions.take(
                query.user,
                query.session_id,
                query.session_timeout_s,
                time.monotonic(),
                must_exist=query.session_must_exist,
            ),
            lambda session: self._sessions.give_back(session, time.monotonic()),
        )
        batch = await self._step(execution, query, gone)
        headers, tag = self._answer_headers(query, execution, batch, time.monotonic_ns() - started_ns)
        coding = headers.get("Content-Encoding")
        encoder = wire.encoder(coding, frames=query.frames)
        if execution.has_ended():
            whole = await self._encoded(encoder, batch, last=True) if batch else b""
            await respond(send, HTTPStatus.OK, headers, whole, method)
            return
        await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": raw_headers(headers)})
        while not execution.has_ended():
            body = await self._encoded(encoder, batch)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            if gone.done():
                await asyncio.get_running_loop().run_in_executor(self._threads, execution.abandon)
                return
            try:
                batch = await self._step(execution, query, gone)
            except QueryError as error:
                batch = late_error(self._text(error), tag)
        body = await self._encoded(encoder, batch, last=True)
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _step(self, execution: Execution, query: Query, gone: asyncio.Task[None]) -> bytes:
        """Take one step of the execution in a thread; kill a reading query whose client goes away meanwhile."""
        pool = self._control if query.statement.kind == "kill" else self._threads
        step = asyncio.get_running_loop().run_in_executor(pool, execution.advance)
        either: set[asyncio.Future[Any]] = {step, gone}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not step.done() and query.statement.reads_only:
            await asyncio.get_running_loop().run_in_executor(self._control, self._kill, query.query_id)
        return await step

    def stop_queries(self) -> None:
        """Stop every query that runs: each client hears code 394."""
        self._kill(None)

    def _kill(self, query_id: str | None) -> None:
        link = self._engine.link()
        try:
            if query_id is None:
                link.run(b"KILL QUERY WHERE 1 ASYNC", "TSV")
            else:
                by_id = b"KILL QUERY WHERE Settings['log_comment'] = {id:String} ASYNC"
                link.run(by_id, "TSV", {"id": _escaped(query_id)})
        finally:
            link.close()

    async def _encoded(self, encoder: wire.Encoder, batch: bytes, *, last: bool = False) -> bytes:
        """Encode a batch: small ones here, larger ones in a thread."""

        def encode() -> bytes:
            return encoder.feed(batch) + encoder.close() if last else encoder.feed(batch)

        if len(batch) <= _INLINE_BYTES_MAX:
            return encode()
        return await asyncio.get_running_loop().run_in_executor(self._threads, encode)

    def _answer_headers(
        self, query: Query, execution: Execution, batch: bytes, elapsed_ns: int
    ) -> tuple[dict[str, str], str]:
        """Return the headers of an answer and the tag that marks an error in its stream."""
        output_format, counts = execution.output_format, execution.counts
        tag = secrets.token_hex(8)
        summary = {
            "read_rows": counts.read_rows,
            "read_bytes": counts.read_bytes,
            "written_rows": counts.written_rows,
            "written_bytes": counts.written_bytes,
            "total_rows_to_read": 0,
            "result_rows": counts.result_rows,
            "result_bytes": 0,
            "elapsed_ns": elapsed_ns,
        }
        headers = self._headers(
            formats.content_type(output_format) if output_format else "text/plain; charset=UTF-8"
        )
        headers |= {
            "X-ClickHouse-Query-Id": query.query_id,
            "X-ClickHouse-Timezone": "UTC",
            "X-ClickHouse-Exception-Tag": tag,
            "X-ClickHouse-Summary": json.dumps(
                {key: str(value) for key, value in summary.items()}, separators=(",", ":")
            ),
        }
        if output_format:
            headers["X-ClickHouse-Format"] = output_format
        # Clients take an empty answer for "no result set" only where nothing says that it is encoded.
        if query.coding and batch:
            headers["Content-Encoding"] = query.coding
        return headers, tag

    def _headers(self, content_type: str) -> dict[str, str]:
        return {"Content-Type": content_type, "X-ClickHouse-Server-Display-Name": SERVER_NAME}

    def _text(self, error: QueryError) -> str:
        return error.text if "(version " in error.text else f"{error.text} (version {self._engine.version})"

    async def _refuse(self, send: Send, error: QueryError, method: str) -> None:
        headers = self._headers("text/plain; charset=UTF-8") | {
            "X-ClickHouse-Exception-Code": str(error.code)
        }
        await respond(
            send, error.status, headers, self._text(error).encode("utf-8", "replace") + b"\n", method
        )

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self._threads.shutdown(wait=True, cancel_futures=True)
                self._control.shutdown(wait=True, cancel_futures=True)
                self._sessions.close()
                self._engine.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _escaped(value: str) -> str:
    """Return a string as a query parameter carries it."""
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
