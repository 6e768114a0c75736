"""What an application builds: HTTP clients for the SDKs, and our own clients for plain iterators.

Before: ``sessions``. This is the last file.
"""

import json
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tokentrail_client.async_shell import AsyncShell
from tokentrail_client.call import Call, Times, generation_url
from tokentrail_client.checksums import intact
from tokentrail_client.course import Course
from tokentrail_client.effects import Ask
from tokentrail_client.endings import NATIVE, PATHS
from tokentrail_client.frames import Frame
from tokentrail_client.keys import HEADER
from tokentrail_client.sessions import AsyncSession, Session
from tokentrail_client.shell import Shell
from tokentrail_client.states import OnState
from tokentrail_client.store import Store
from tokentrail_client.transport import AsyncTransport, Transport, root_of
from tokentrail_client.vendor import Flavour, Name

_BEGIN = (
    ("content-type", "application/json"),
    ("prefer", "respond-async"),
    ("x-tokentrail-on-disconnect", "grace"),
)


def http_client(
    *,
    store: Store | None = None,
    edges: Sequence[str] = (),
    times: Times | None = None,
    on_state: OnState | None = None,
    cancel_on_close: bool = True,
    transport: Any = None,
    library: Name | None = None,
    **options: Any,
) -> Any:
    """An HTTP client for ``OpenAI(http_client=…)`` or ``Anthropic(http_client=…)``.

    Args:
        store: where positions are kept; nowhere by default.
        edges: addresses of more edges, asked in turn after a cut.
        times: the time-outs.
        on_state: told every move, for a "resuming…" hint.
        cancel_on_close: whether closing a stream before its end cancels its generation.
        transport: what really sends, where the library's own transport is not enough (proxies, certificates).
        library: ``httpx`` for SDKs of before ``httpx2``.
        options: of the library's ``Client``.

    """
    flavour = Flavour(library)
    ours = Transport(
        transport,
        store=store,
        edges=edges,
        times=times,
        on_state=on_state,
        cancel_on_close=cancel_on_close,
        flavour=flavour,
    )
    return flavour.http.Client(transport=ours, **{**flavour.defaults((times or Times()).read_s), **options})


def async_http_client(
    *,
    store: Store | None = None,
    edges: Sequence[str] = (),
    times: Times | None = None,
    on_state: OnState | None = None,
    cancel_on_close: bool = True,
    transport: Any = None,
    library: Name | None = None,
    **options: Any,
) -> Any:
    """An HTTP client for ``AsyncOpenAI(http_client=…)`` or ``AsyncAnthropic(http_client=…)``; see http_client."""
    flavour = Flavour(library)
    ours = AsyncTransport(
        transport,
        store=store,
        edges=edges,
        times=times,
        on_state=on_state,
        cancel_on_close=cancel_on_close,
        flavour=flavour,
    )
    return flavour.http.AsyncClient(
        transport=ours, **{**flavour.defaults((times or Times()).read_s), **options}
    )


class _Client:
    """What both clients have.

    Args:
        base_url: the edge's address, or several: asked in turn.
        api_key: sent as ``Authorization: Bearer``.
        store: where sessions are kept, with the journal of their events; in memory by default.
        times: the time-outs.
        on_state: told every move of every session.
        acks: whether the edge is told what was received, every 32 events or 2 seconds.
        transport: what really sends.
        library: the HTTP library.

    """

    _blocking: bool

    def __init__(
        self,
        base_url: str | Sequence[str],
        api_key: str,
        *,
        store: Store | None = None,
        times: Times | None = None,
        on_state: OnState | None = None,
        acks: bool = False,
        transport: Any = None,
        library: Name | None = None,
    ) -> None:
        urls = (base_url,) if isinstance(base_url, str) else base_url
        self._roots = tuple(root_of(url) for url in urls)
        self._auth = (("authorization", f"Bearer {api_key}"), ("accept-encoding", "identity"))
        self._store = store or Store()
        self._own_store = store is None
        self._times = times or Times()
        self._on_state = on_state
        self._acks = acks
        self._flavour = Flavour(library)
        self._inner = self._flavour.transport(blocking=self._blocking) if transport is None else transport

    def _begun(
        self, path: str, body: Mapping[str, Any], session: str | None, headers: Mapping[str, str]
    ) -> tuple[Course, list[Frame]]:
        """The course of a call, or of what is left of it where the store knows its session; and its journal."""
        if path not in PATHS:
            raise ValueError(f"path is one of {', '.join(PATHS)}")
        name = session or str(uuid.uuid4())
        given = tuple((key.lower(), value) for key, value in headers.items())
        call = Call(
            session=name,
            dialect=NATIVE,
            roots=self._roots,
            path=path,
            headers=(*dict((*_BEGIN, *given)).items(), (HEADER, name)),
            auth=self._auth,
            body=json.dumps({**body, "stream": True}).encode(),
            insists=True,
            acks=self._acks,
        )
        stored = self._store.get(name)
        return self._opened(call, stored.generation_id if stored else None)

    def _attached(self, generation_id: str) -> tuple[Course, list[Frame]]:
        call = Call(generation_id, NATIVE, self._roots, auth=self._auth, insists=True, acks=self._acks)
        return self._opened(call, generation_id)

    def _opened(self, call: Call, generation_id: str | None) -> tuple[Course, list[Frame]]:
        self._store.begin(call.session, call.dialect, call.roots, generation_id)
        journal = self._journal(call.session) if generation_id else []
        course = Course(call, self._times, time.monotonic, random.random, self._on_state, generation_id)
        course.position.fresh(journal)
        return course, journal

    def _journal(self, session: str) -> list[Frame]:
        """What the store has of a session, up to what does not fit its checksums: that is read again."""
        stored, journal = self._store.get(session), self._store.events(session)
        events = [(seq, frame.data) for frame in journal if (seq := frame.seq) is not None]
        return journal[: intact(events, stored.checksums if stored else ())]

    def _cancels(self, generation_id: str, mode: str, reason: str) -> list[Any]:
        """The request that ends a generation, for each edge."""
        headers = {**dict(self._auth), "content-type": "application/json"}
        body = json.dumps({"mode": mode, "reason": reason}).encode()
        urls = [generation_url(root, generation_id, "cancel") for root in self._roots]
        return [self._flavour.request(Ask("POST", url, headers, body, self._times.idle_s)) for url in urls]


class Client(_Client):
    """Generations as blocking iterators."""

    _blocking = True

    def stream(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        session: str | None = None,
        after: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Session:
        """Begin a generation and read it; by the name of a session that the store knows, go on with it.

        Args:
            path: of the call: ``/chat/completions``, ``/messages`` or ``/responses``.
            body: as that call wants it.
            session: the name; a new one by default.
            after: the cursor of the last item that the application took.
            headers: of the call, beside ours.

        """
        return self._session(*self._begun(path, body, session, headers or {}), after)

    def attach(self, generation_id: str, *, after: str | None = None) -> Session:
        """Read a generation that somebody began, from its first event or behind a cursor."""
        return self._session(*self._attached(generation_id), after)

    def cancel(self, generation_id: str, *, mode: str = "soft", reason: str = "user_abort") -> int:
        """End a generation, at the first edge that answers; the status: 200 ended, 202 on its way."""
        *others, last = self._cancels(generation_id, mode, reason)
        for request in others:
            with suppress(*self._flavour.lost):  # the next edge can do it as well
                return self._status(self._inner.handle_request(request))
        return self._status(self._inner.handle_request(last))

    def _status(self, response: Any) -> int:
        response.close()
        return int(response.status_code)

    def _session(self, course: Course, journal: list[Frame], after: str | None) -> Session:
        shell = Shell(course, self._flavour, self._inner.handle_request, self._store, journal=True)
        return Session(shell, journal, after, self._flavour.lost)

    def close(self) -> None:
        """Close its connections, and the store that is its own."""
        self._inner.close()
        if self._own_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Client):
    """Generations as asynchronous iterators; see Client."""

    _blocking = False

    def stream(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        session: str | None = None,
        after: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncSession:
        """Begin a generation and read it; see Client.stream."""
        return self._session(*self._begun(path, body, session, headers or {}), after)

    def attach(self, generation_id: str, *, after: str | None = None) -> AsyncSession:
        """Read a generation that somebody began, from its first event or behind a cursor."""
        return self._session(*self._attached(generation_id), after)

    async def cancel(self, generation_id: str, *, mode: str = "soft", reason: str = "user_abort") -> int:
        """End a generation, at the first edge that answers; the status: 200 ended, 202 on its way."""
        *others, last = self._cancels(generation_id, mode, reason)
        for request in others:
            with suppress(*self._flavour.lost):  # the next edge can do it as well
                return await self._status(await self._inner.handle_async_request(request))
        return await self._status(await self._inner.handle_async_request(last))

    async def _status(self, response: Any) -> int:
        await response.aclose()
        return int(response.status_code)

    def _session(self, course: Course, journal: list[Frame], after: str | None) -> AsyncSession:
        shell = AsyncShell(course, self._flavour, self._inner.handle_async_request, self._store, journal=True)
        return AsyncSession(shell, journal, after, self._flavour.lost)

    async def close(self) -> None:
        """Close its connections, and the store that is its own."""
        await self._inner.aclose()
        if self._own_store:
            self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
