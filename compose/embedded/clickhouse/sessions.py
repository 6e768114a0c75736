"""Sessions of the HTTP interface: a connection that outlives a request, by the id that the client chose.

Purpose: temporary tables, ``SET`` and ``USE`` last for a session; a second request at the same time is refused, as a
server does. Invariants: a session is with at most one request; it ends when it was idle for its own time; time is an
argument. Requests without an id get a fresh connection, which nobody else sees.

Before it in the flow: ``server``. After it: ``engine`` (the connections), ``execution`` (which uses them).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from compose.embedded.clickhouse import errors
from compose.embedded.clickhouse.engine import Link
from compose.embedded.clickhouse.errors import QueryError
from compose.embedded.clickhouse.guard import MAIN_DATABASE

# Each keeps an engine connection (some 10 kB) and a client that forgets its session id makes one per request.
SESSIONS_MAX = 1000


@dataclass(slots=True)
class Session:
    """A connection with its memory. ``id`` is empty for the one-request kind."""

    id: str
    link: Link
    database: str = MAIN_DATABASE
    idle_timeout_s: float = 0.0
    idle_since_s: float = 0.0
    busy: bool = field(default=True)


class Sessions:
    """All sessions of the server; safe to use from several threads."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect
        self._known: dict[tuple[str, str], Session] = {}
        self._lock = threading.Lock()

    def take(
        self, user: str, session_id: str, idle_timeout_s: float, now_s: float, *, must_exist: bool
    ) -> Session:
        """Return the session for one request; raise `QueryError` 372 (not found) or 373 (busy)."""
        if not session_id:
            return Session("", self._connect())
        with self._lock:
            self._end_idle(now_s)
            session = self._known.get((user, session_id))
            if session is None:
                if must_exist:
                    raise QueryError.refusal(errors.SESSION_NOT_FOUND, f"Session {session_id} not found")
                self._make_room()
                session = self._known[user, session_id] = Session(session_id, self._connect())
            elif session.busy:
                raise QueryError.refusal(
                    errors.SESSION_IS_LOCKED, f"Session {session_id} is locked by a concurrent client"
                )
            session.busy = True
            session.idle_timeout_s = idle_timeout_s
            return session

    def give_back(self, session: Session, now_s: float) -> None:
        """End the request's use of a session: it waits for the next request, or closes."""
        if not session.id:
            session.link.close()
            return
        with self._lock:
            session.idle_since_s = now_s
            session.busy = False

    def close(self) -> None:
        """Close every session."""
        with self._lock:
            for session in self._known.values():
                session.link.close()
            self._known.clear()

    def _end_idle(self, now_s: float) -> None:
        ended = [
            key
            for key, session in self._known.items()
            if not session.busy and now_s - session.idle_since_s > session.idle_timeout_s
        ]
        for key in ended:
            self._known.pop(key).link.close()

    def _make_room(self) -> None:
        """Close the session that was idle for longest where there are too many."""
        if len(self._known) < SESSIONS_MAX:
            return
        idle = [(session.idle_since_s, key) for key, session in self._known.items() if not session.busy]
        if not idle:
            raise QueryError.refusal(errors.SESSION_IS_LOCKED, f"{SESSIONS_MAX} sessions are busy")
        self._known.pop(min(idle)[1]).link.close()
