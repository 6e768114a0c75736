"""Our own clients: what an application builds for plain iterators. Before: ``sessions``. This is the last file."""

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
from tokentrail_client.off_loop import OffLoop
from tokentrail_client.sessions import AsyncSession, Session
from tokentrail_client.shell import Shell
from tokentrail_client.states import OnState
from tokentrail_client.store import Store
from tokentrail_client.transport import root_of
from tokentrail_client.vendor import Flavour, Name

_BEGIN = (
    ("content-type", "application/json"),
    ("prefer", "respond-async"),
    ("x-tokentrail-on-disconnect", "grace"),
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

    def _call(
        self, path: str, body: Mapping[str, Any], session: str | None, headers: Mapping[str, str]
    ) -> Call:
        path = path.removeprefix("/v1")
        if path not in PATHS:
            raise ValueError(f"path is one of {', '.join(PATHS)}")
        name = session or str(uuid.uuid4())
        given = tuple((key.lower(), value) for key, value in headers.items())
        return Call(
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

    def _reader(self, generation_id: str) -> Call:
        """What reads a generation that has begun already."""
        return Call(generation_id, NATIVE, self._roots, auth=self._auth, insists=True, acks=self._acks)

    def _course(self, call: Call) -> Course:
        return Course(call, self._times, time.monotonic, random.random, self._on_state)

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
            path: of the call: ``/chat/completions``, ``/messages`` or ``/responses``; ``/v1`` may stand before it.
            body: as that call wants it.
            session: the name; a new one by default.
            after: the cursor of the last item that the application took.
            headers: of the call, beside ours.

        """
        return self._session(self._call(path, body, session, headers or {}), after)

    def attach(self, generation_id: str, *, after: str | None = None) -> Session:
        """Read a generation that somebody began, from its first event or behind a cursor."""
        return self._session(self._reader(generation_id), after, generation_id)

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

    def _session(self, call: Call, after: str | None, generation_id: str | None = None) -> Session:
        course = self._course(call)
        journal = _opened(self._store, course, generation_id)
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
    """Generations as asynchronous iterators; see Client. Its store is read and written beside the event loop."""

    _blocking = False

    def __init__(self, base_url: str | Sequence[str], api_key: str, **more: Any) -> None:
        super().__init__(base_url, api_key, **more)
        self._off_loop = OffLoop(self._store)

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
        return self._session(self._call(path, body, session, headers or {}), after)

    def attach(self, generation_id: str, *, after: str | None = None) -> AsyncSession:
        """Read a generation that somebody began, from its first event or behind a cursor."""
        return self._session(self._reader(generation_id), after, generation_id)

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

    def _session(self, call: Call, after: str | None, generation_id: str | None = None) -> AsyncSession:
        course = self._course(call)
        off_loop = self._off_loop
        shell = AsyncShell(course, self._flavour, self._inner.handle_async_request, off_loop, journal=True)

        async def journal() -> list[Frame]:
            return await off_loop.run(lambda store: _opened(store, course, generation_id))

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


def _opened(store: Store, course: Course, generation_id: str | None) -> list[Frame]:
    """Begin a session in the store, or go on with the one of its name: its journal, from which the course goes on.

    Of the journal what does not fit its checksums is left out: that is read again. Raises StoreError.
    """
    call = course.call
    stored = store.get(call.session)
    known = generation_id or (stored.generation_id if stored else None)
    store.begin(call.session, call.dialect, call.roots, known)
    journal = store.events(call.session) if known and stored else []
    events = [(seq, frame.data) for frame in journal if (seq := frame.seq) is not None]
    journal = journal[: intact(events, stored.checksums if stored else ())]
    course.goes_on(known, journal)
    return journal
