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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tokentrail_client.checksums import RANGES_MAX, Range, added
from tokentrail_client.frames import Frame, seq_of
from tokentrail_client.states import State

SESSIONS_MAX = 20
"""How many sessions are kept: the newest."""
BUSY_S = 5.0
"""How long another process may hold the file."""
_OPEN_AGAIN_S = 0.02
VERSION = 1
"""The form of the file."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
  number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL UNIQUE, generation_id TEXT, dialect TEXT NOT NULL,
  roots TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, last_event_id TEXT,
  updated_us INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS events (
  session TEXT NOT NULL REFERENCES sessions (session) ON DELETE CASCADE, seq INTEGER NOT NULL, id TEXT NOT NULL,
  event TEXT, data TEXT NOT NULL, PRIMARY KEY (session, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ranges (
  session TEXT NOT NULL REFERENCES sessions (session) ON DELETE CASCADE, first INTEGER NOT NULL,
  last INTEGER NOT NULL, crc32 INTEGER NOT NULL, PRIMARY KEY (session, first)) WITHOUT ROWID;
"""
_READ = "SELECT session, generation_id, dialect, roots, state, reason, last_event_id FROM sessions"


class StoreError(Exception):
    """The file cannot be read or written: its disk is full, another process holds it, it is no store."""


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
        self._path = path
        self._lock = threading.Lock()
        try:
            self._db = self._open()
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from error

    def _open(self) -> sqlite3.Connection:
        """Open the file, and make its tables where it is new.

        SQLite waits for whoever writes, but not where the file's mode changes: of several processes that begin a new
        store at once all but one are refused there, and try again.
        """
        until_s = time.monotonic() + BUSY_S
        while True:
            try:
                return self._opened()
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > until_s:
                    raise
            time.sleep(_OPEN_AGAIN_S)

    def _opened(self) -> sqlite3.Connection:
        if str(self._path) != ":memory:":
            Path(self._path).touch(mode=0o600)  # what a model says is for its reader
        db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "secure_delete=ON"):
                db.execute(f"PRAGMA {pragma}")
            _check_form(db, self._path)
            db.executescript(f"{_SCHEMA}PRAGMA user_version = {VERSION};")
        except BaseException:
            db.close()
            raise
        return db

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(f"the sessions' store {self._path}: {error}")

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
            known = db.execute(
                "UPDATE sessions SET state = ?, reason = ?, generation_id = coalesce(?, generation_id),"
                " last_event_id = coalesce(?, last_event_id), updated_us = ? WHERE session = ?",
                (state, reason, generation_id, last_event_id, _now_us(), session),
            )
            numbered = [(seq, frame) for frame in frames if (seq := frame.seq) is not None]
            if not known.rowcount or not numbered:
                return  # a session that was forgotten in favour of newer ones is read on without a place in the store
            _count(db, session, [(seq, frame.data) for seq, frame in numbered])
            if journal:
                db.executemany(
                    "INSERT OR REPLACE INTO events (session, seq, id, event, data) VALUES (?, ?, ?, ?, ?)",
                    [(session, seq, frame.id, frame.event, frame.data) for seq, frame in numbered],
                )

    def repair(self, session: str, seq: int, event: str | None, data: str) -> None:
        """Put an event in the place of one in the journal."""
        with self._transaction() as db:
            named = (event, data, session, seq)
            db.execute("UPDATE events SET event = ?, data = ? WHERE session = ? AND seq = ?", named)

    def get(self, session: str) -> Stored | None:
        """One session; None where it is not known or was forgotten."""
        found = self._read(" WHERE session = ?", (session,))
        return found[0] if found else None

    def sessions(self) -> list[Stored]:
        """All sessions, the newest first."""
        return self._read(" ORDER BY number DESC")

    def _read(self, which: str, named: tuple[str, ...] = ()) -> list[Stored]:
        with self._reading() as db:
            rows = db.execute(_READ + which, named).fetchall()
            return [_stored(row, _ranges(db, row[0])) for row in rows]

    def events(self, session: str, after_seq: int = -1) -> list[Frame]:
        """The journal of a session behind a number, in order; its frames carry no raw bytes."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT id, event, data FROM events WHERE session = ? AND seq > ? ORDER BY seq",
                (session, after_seq),
            ).fetchall()
        return [Frame(b"", *row) for row in rows]

    def forget(self, session: str) -> None:
        """Erase a session and its journal, from the file's bytes too."""
        with self._transaction() as db:
            db.execute("DELETE FROM sessions WHERE session = ?", (session,))
        with self._reading() as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The file, for one thread at a time. Raises StoreError."""
        with self._lock:
            try:
                yield self._db
            except sqlite3.Error as error:
                raise self._failed(error) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One writer at a time in this process (the lock) and in all (``BEGIN IMMEDIATE``): all of it, or nothing."""
        with self._reading() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # a full disk has rolled it back already
                    db.execute("ROLLBACK")
                raise


def _check_form(db: sqlite3.Connection, path: str | Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise ValueError(f"{path} was made by a newer tokentrail-client (form {version}, known: {VERSION})")


def _count(db: sqlite3.Connection, session: str, events: list[tuple[int, str]]) -> None:
    """Add events to the session's newest range, or begin one behind it."""
    newest = "SELECT first, last, crc32 FROM ranges WHERE session = ? ORDER BY first DESC LIMIT 1"
    before = [Range(*row) for row in db.execute(newest, (session,))]
    after = added(before, events)
    db.executemany("INSERT OR REPLACE INTO ranges VALUES (?, ?, ?, ?)", [(session, *part) for part in after])
    if len(after) > len(before):
        db.execute(
            "DELETE FROM ranges WHERE session = ? AND first NOT IN"
            " (SELECT first FROM ranges WHERE session = ? ORDER BY first DESC LIMIT ?)",
            (session, session, RANGES_MAX),
        )


def _ranges(db: sqlite3.Connection, session: str) -> tuple[Range, ...]:
    rows = db.execute("SELECT first, last, crc32 FROM ranges WHERE session = ? ORDER BY first", (session,))
    return tuple(Range(*row) for row in rows)


def _stored(row: tuple[str, ...], checksums: tuple[Range, ...]) -> Stored:
    session, generation_id, dialect, roots, state, reason, last_event_id = row
    return Stored(
        session,
        generation_id,
        dialect,
        tuple(json.loads(roots)),
        State(state),
        reason,
        last_event_id,
        checksums,
    )


def _now_us() -> int:
    return time.time_ns() // 1000
