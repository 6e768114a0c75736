"""Where sessions are kept: SQLite, one file, several threads and processes. Before: ``course``. After: ``shell``.

A session is the four-tuple (session, last event id, token, checksums), with the journal of its events where the reader
wants one. Each ``keep`` is one transaction: the position and the events up to it are there together or not at all, and
both are there before anything of them is handed over. So a process that is killed at any point finds a prefix of the
stream without a hole, and whatever the application was handed is in it.

A commit survives the death of the process. It does not wait for the disk (``synchronous=NORMAL``): after a power cut the
newest events may be missing, the rest is whole, and the log has them.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tokentrail_client.checksums import Range, added
from tokentrail_client.frames import Frame, seq_of
from tokentrail_client.states import State

SESSIONS_MAX = 20
"""How many sessions are kept: the newest."""
BUSY_S = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
  number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL UNIQUE, generation_id TEXT, dialect TEXT NOT NULL,
  roots TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, last_event_id TEXT, checksums TEXT NOT NULL DEFAULT '[]',
  updated_us INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS events (
  session TEXT NOT NULL REFERENCES sessions (session) ON DELETE CASCADE, seq INTEGER NOT NULL, id TEXT NOT NULL,
  event TEXT, data TEXT NOT NULL, PRIMARY KEY (session, seq)) WITHOUT ROWID;
"""
_READ = "SELECT session, generation_id, dialect, roots, state, reason, last_event_id, checksums FROM sessions"


class Stored(NamedTuple):
    """A session as it stands in the store. ``checksums``: CRC-32s over ranges of its events' data."""

    session: str
    generation_id: str | None
    dialect: str
    roots: tuple[str, ...]
    state: State
    reason: str | None
    last_event_id: str | None
    checksums: tuple[Range, ...]

    @property
    def token(self) -> str | None:
        """The ``X-Resumption-Token``, with which a plain number is a cursor too; None before the first event."""
        seq, sig = seq_of(self.last_event_id), (self.last_event_id or "").split("-", 2)[-1]
        if self.generation_id is None or seq is None or not sig:
            return None
        return f"resumption_id={self.generation_id}&seq={seq}&sig={sig}"


class Store:
    """The sessions of one file, ``:memory:`` for none."""

    def __init__(self, path: str | Path = ":memory:", sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("PRAGMA foreign_keys=ON")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(
        self, session: str, dialect: str, roots: Sequence[str], generation_id: str | None = None
    ) -> None:
        """A session begins, or goes on; the oldest beyond the limit are forgotten."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO sessions (session, dialect, roots, state, generation_id, updated_us) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (session) DO UPDATE SET roots = excluded.roots, state = excluded.state",
                (session, dialect, json.dumps(list(roots)), State.CONNECTING, generation_id, _now_us()),
            )
            db.execute(
                "DELETE FROM sessions WHERE number NOT IN (SELECT number FROM sessions ORDER BY number DESC LIMIT ?)",
                (self._sessions_max,),
            )

    def keep(
        self,
        session: str,
        state: State,
        *,
        generation_id: str | None = None,
        last_event_id: str | None = None,
        reason: str | None = None,
        frames: Sequence[Frame] = (),
        journal: bool = False,
    ) -> None:
        """Store a position, and the events up to it: one transaction. What is None stays as it was."""
        with self._transaction() as db:
            found = db.execute("SELECT checksums FROM sessions WHERE session = ?", (session,)).fetchone()
            if found is None:
                return  # forgotten in favour of newer ones: it is read to its end without a place in the store
            numbered = [(frame.seq, frame) for frame in frames if frame.id is not None]
            ranges = added(_ranges(found[0]), [(n, frame.data) for n, frame in numbered if n is not None])
            db.execute(
                "UPDATE sessions SET state = ?, reason = ?, generation_id = coalesce(?, generation_id),"
                " last_event_id = coalesce(?, last_event_id), checksums = ?, updated_us = ? WHERE session = ?",
                (state, reason, generation_id, last_event_id, json.dumps(ranges), _now_us(), session),
            )
            if journal:
                db.executemany(
                    "INSERT OR IGNORE INTO events (session, seq, id, event, data) VALUES (?, ?, ?, ?, ?)",
                    [
                        (session, n, frame.id, frame.event, frame.data)
                        for n, frame in numbered
                        if n is not None
                    ],
                )

    def get(self, session: str) -> Stored | None:
        """One session; None where it is not known or was forgotten."""
        with self._lock:
            row = self._db.execute(_READ + " WHERE session = ?", (session,)).fetchone()
        return None if row is None else _stored(row)

    def sessions(self) -> list[Stored]:
        """All sessions, the newest first."""
        with self._lock:
            rows = self._db.execute(_READ + " ORDER BY number DESC").fetchall()
        return [_stored(row) for row in rows]

    def events(self, session: str, after_seq: int = -1) -> list[Frame]:
        """The journal of a session behind a number, in order; its frames carry no raw bytes."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, event, data FROM events WHERE session = ? AND seq > ? ORDER BY seq",
                (session, after_seq),
            ).fetchall()
        return [Frame(b"", *row) for row in rows]

    def forget(self, session: str) -> None:
        """Erase a session and its journal."""
        with self._transaction() as db:
            db.execute("DELETE FROM sessions WHERE session = ?", (session,))

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._lock, self._db)


class _Transaction:
    """One writer at a time in this process (the lock) and in all (``BEGIN IMMEDIATE``)."""

    def __init__(self, lock: threading.Lock, db: sqlite3.Connection) -> None:
        self._lock = lock
        self._db = db

    def __enter__(self) -> sqlite3.Connection:
        self._lock.acquire()
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._lock.release()
            raise
        return self._db

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._db.execute("COMMIT" if kind is None else "ROLLBACK")
        finally:
            self._lock.release()


def _ranges(text: str) -> list[Range]:
    return [Range(*numbers) for numbers in json.loads(text)]


def _stored(row: tuple[str, ...]) -> Stored:
    session, generation_id, dialect, roots, state, reason, last_event_id, checksums = row
    return Stored(
        session,
        generation_id,
        dialect,
        tuple(json.loads(roots)),
        State(state),
        reason,
        last_event_id,
        tuple(_ranges(checksums)),
    )


def _now_us() -> int:
    return time.time_ns() // 1000
