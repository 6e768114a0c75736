"""Under an unmodified SDK: a stream that breaks goes on, and the SDK sees one that never broke.

A call to one of the three dialects is a course; every other request passes through untouched. A refusal is handed up as
it is: the SDK obeys its ``x-should-retry`` and ``Retry-After`` itself, and asking here as well would multiply its tries.
Before: ``recognised``. After: ``http_clients`` wrap these.
"""

import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self
from urllib.parse import urlsplit

from tokentrail_client.async_shell import AsyncShell
from tokentrail_client.call import Call, Stopped, Times
from tokentrail_client.course import Course
from tokentrail_client.effects import Answer, Foreign, Give
from tokentrail_client.keys import HEADER, RETRIES, Keys
from tokentrail_client.off_loop import OffLoop
from tokentrail_client.recognised import call_at, call_name, is_call, root_end, wants_stream
from tokentrail_client.shell import Shell, told
from tokentrail_client.states import OnState
from tokentrail_client.store import Store, StoreError
from tokentrail_client.vendor import Flavour

_CALLS_OWN = frozenset({"content-type", "accept", "accept-encoding", "prefer", RETRIES, HEADER})
_WIRES_OWN = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect"})


def root_of(edge: str) -> str:
    """An edge's address up to ``/v1``, with or without it."""
    bare = edge.rstrip("/")
    return bare if bare.endswith("/v1") else f"{bare}/v1"


class _Transport:
    """What both transports have.

    Args:
        inner: the transport that really sends; the library's own where it is None.
        store: where positions are kept.
        edges: more edges, asked in turn after a cut; the one that the SDK calls is the first.
        times: the time-outs.
        on_state: told every move of every session.
        cancel_on_close: an application that closes a stream before its end wants no more of it: its generation is
            cancelled, as a provider's ends with its socket. Else it runs on for the grace time.
        flavour: the HTTP library.

    """

    _blocking: bool

    def __init__(
        self,
        inner: Any = None,
        *,
        store: Store | None = None,
        edges: Sequence[str] = (),
        times: Times | None = None,
        on_state: OnState | None = None,
        cancel_on_close: bool = True,
        flavour: Flavour | None = None,
    ) -> None:
        self._flavour = flavour or Flavour()
        self._inner = self._flavour.transport(blocking=self._blocking) if inner is None else inner
        self._store = store
        self._edges = tuple(root_of(edge) for edge in edges)
        self._times = times or Times()
        self._on_state = on_state
        self._cancels = cancel_on_close
        self._keys = Keys()

    def _course(self, request: Any, body: bytes) -> Course | None:
        """The course of a call; None for a request that is none."""
        url = str(request.url)
        found = call_at(request.method, urlsplit(url).path)
        if found is None:
            return None
        at, dialect = found
        base, path = url[: root_end(url, at)], url[root_end(url, at) :]
        headers = [(name.lower(), value) for name, value in request.headers.items()]
        given = dict(headers)
        key = given.get(HEADER) or self._keys.key(call_name(url, headers, body), given.get(RETRIES))
        own = [(name, value) for name, value in headers if name in _CALLS_OWN - {HEADER, "accept-encoding"}]
        auth = [(name, value) for name, value in headers if name not in _CALLS_OWN | _WIRES_OWN]
        call = Call(
            session=key,
            dialect=dialect,
            roots=(base, *(edge for edge in self._edges if edge != base)),
            method=request.method,
            path=path,
            headers=(*own, (HEADER, key)) if request.method == "POST" else tuple(own),
            auth=(*auth, ("accept-encoding", "identity")),
            body=body,
            streams=wants_stream(body) or request.method == "GET",
        )
        return Course(call, self._bounded(request), time.monotonic, random.random, self._on_state)

    def _bounded(self, request: Any) -> Times:
        """The time-outs, of which the caller's own read time-out may shorten the wait for an event."""
        read_s = (request.extensions.get("timeout") or {}).get("read")
        times = self._times
        if read_s is None or read_s >= times.read_s:
            return times
        return replace(times, idle_s=min(times.idle_s, read_s), read_s=read_s)

    def _not_begun(self, error: StoreError) -> Exception:
        return told(self._flavour, Stopped("store_failed", str(error)))

    def _failed(self, course: Course) -> None:
        call = course.call
        self._keys.failed(call_name(call.roots[0] + call.path, call.auth, call.body), call.session)

    def _answer(self, shell: Shell | AsyncShell, up: Answer) -> Any:
        if up.head.status >= 400 and up.head.headers.get("x-should-retry") != "false":  # noqa: PLR2004 - HTTP's own
            self._failed(shell.course)
        headers = self._flavour.headers(shell.response)
        if up.own:
            headers = [pair for pair in headers if pair[0].lower() != b"content-type"]
            headers.append((b"content-type", b"application/json"))
        return self._flavour.http.Response(up.head.status, headers=headers, content=up.body)

    def _stream(self, shell: Shell | AsyncShell, body: Any) -> Any:
        stream = self._flavour.streams(body, blocking=self._blocking)(shell, self._flavour)
        headers = self._flavour.headers(shell.response)
        return self._flavour.http.Response(200, headers=headers, stream=stream)


class Transport(_Transport):
    """The blocking one."""

    _blocking = True

    def handle_request(self, request: Any) -> Any:
        """Send a request; its response, whose stream does not break."""
        course = self._course(request, request.read()) if is_call(request) else None
        if course is None:
            return self._inner.handle_request(request)
        if self._store is not None:
            try:
                self._store.begin(course.call.session, course.call.dialect, course.call.roots)
            except StoreError as error:
                raise self._not_begun(error) from error
        timeout = request.extensions.get("timeout")
        shell = Shell(
            course,
            self._flavour,
            self._inner.handle_request,
            self._store,
            timeout=timeout,
            cancels=self._cancels,
        )
        try:
            up = shell.step()
        except Stopped as error:
            self._failed(course)
            raise told(self._flavour, error) from error
        except Exception:
            self._failed(course)
            raise
        if isinstance(up, Answer):
            response = self._answer(shell, up)
            shell.step()
            return response
        if isinstance(up, Foreign):
            response = shell.let_go()
            shell.close()
            return response
        return self._stream(shell, _Body)

    def close(self) -> None:
        """Close what is below."""
        self._inner.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)


class AsyncTransport(_Transport):
    """The one on an event loop."""

    _blocking = False

    def __init__(self, inner: Any = None, **more: Any) -> None:
        super().__init__(inner, **more)
        self._off_loop = None if self._store is None else OffLoop(self._store)

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request; its response, whose stream does not break."""
        course = self._course(request, await request.aread()) if is_call(request) else None
        if course is None:
            return await self._inner.handle_async_request(request)
        if self._off_loop is not None:
            call = course.call
            try:
                await self._off_loop.run(lambda store: store.begin(call.session, call.dialect, call.roots))
            except StoreError as error:
                raise self._not_begun(error) from error
        timeout = request.extensions.get("timeout")
        shell = AsyncShell(
            course,
            self._flavour,
            self._inner.handle_async_request,
            self._off_loop,
            timeout=timeout,
            cancels=self._cancels,
        )
        try:
            up = await shell.step()
        except Stopped as error:
            self._failed(course)
            raise told(self._flavour, error) from error
        except Exception:
            self._failed(course)
            raise
        if isinstance(up, Answer):
            response = self._answer(shell, up)
            await shell.step()
            return response
        if isinstance(up, Foreign):
            response = shell.let_go()
            await shell.close()
            return response
        return self._stream(shell, _AsyncBody)

    async def aclose(self) -> None:
        """Close what is below."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._inner.__aexit__(*error)


class _Body:
    """The stream of an answer; closing it before its end is the application's own abort."""

    def __init__(self, shell: Shell, flavour: Flavour) -> None:
        self._shell = shell
        self._flavour = flavour

    def __iter__(self) -> Iterator[bytes]:
        try:
            while isinstance(up := self._shell.step(), Give):
                yield b"".join(frame.raw for frame in up.frames)
        except Stopped as error:
            raise told(self._flavour, error) from error

    def close(self) -> None:
        self._shell.close()


class _AsyncBody:
    """The stream of an answer; closing it before its end is the application's own abort."""

    def __init__(self, shell: AsyncShell, flavour: Flavour) -> None:
        self._shell = shell
        self._flavour = flavour

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while isinstance(up := await self._shell.step(), Give):
                yield b"".join(frame.raw for frame in up.frames)
        except Stopped as error:
            raise told(self._flavour, error) from error

    async def aclose(self) -> None:
        await self._shell.close()
