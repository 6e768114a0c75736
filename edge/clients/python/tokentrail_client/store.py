"""Where sessions are kept: SQLite, one file, several threads and processes. Before: ``tables``. After: ``shell``.

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
from typing import Self

from tokentrail_client.frames import Frame
from tokentrail_client.states import State
from tokentrail_client.tables import (
    SCHEMA,
    VERSION,
    Kept,
    Stored,
    check_form,
    now_us,
    read_sessions,
    write_kept,
)

SESSIONS_MAX = 20
"""How many sessions are kept: the newest."""
BUSY_S = 5.0
"""How long another process may hold the file."""
_OPEN_AGAIN_S = 0.02


class StoreError(Exception):
    """The file cannot be read or written: its disk is full, another process holds it, it is no store.

    ``held``: another process holds it, for longer than we wait.
    """

    def __init__(self, message: str, *, held: bool = False) -> None:
        super().__init__(message)
        self.held = held


class Store:
    """The sessions of one file, ``:memory:`` for none."""

    def __init__(self, path: str | Path = ":memory:", sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._path = path
        self.in_memory = str(path) == ":memory:"
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
                if not _is_busy(error) or time.monotonic() > until_s:
                    raise
            time.sleep(_OPEN_AGAIN_S)

    def _opened(self) -> sqlite3.Connection:
        if not self.in_memory:
            Path(self._path).touch(mode=0o600)  # what a model says is for its reader
        db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "secure_delete=ON"):
                db.execute(f"PRAGMA {pragma}")
            check_form(db, self._path)
            db.executescript(f"{SCHEMA}PRAGMA user_version = {VERSION};")
        except BaseException:
            db.close()
            raise
        return db

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(f"the sessions' store {self._path}: {error}", held=_is_busy(error))

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
                (session, dialect, json.dumps(list(roots)), State.CONNECTING, generation_id, now_us()),
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
        """Store a position, and the events up to it; see Kept."""
        self.write([Kept(session, state, generation_id, last_event_id, reason, frames, journal)])

    def write(self, kept: Sequence[Kept]) -> None:
        """Store several positions, in this order: one transaction."""
        with self._transaction() as db:
            for one in kept:
                write_kept(db, one)

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
            return read_sessions(db, which, named)

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
            except (
                sqlite3.Error,
                UnicodeError,
                OverflowError,
            ) as error:  # the latter two: what no file can hold
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


def _is_busy(error: Exception) -> bool:
    return (
        isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    )
