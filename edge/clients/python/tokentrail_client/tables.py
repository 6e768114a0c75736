"""The tables of a store: their form, what is written to them, what is read. Each on a connection that somebody gives.

Before: ``checksums``. After: ``store``.
"""

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tokentrail_client.checksums import RANGES_MAX, Range, added
from tokentrail_client.frames import Frame, seq_of
from tokentrail_client.states import State

VERSION = 1
"""The form of the file."""
SCHEMA = """
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


class Kept(NamedTuple):
    """What is kept in one go: a position, and the events up to it. What is None stays as it was.

    ``journal``: whether the events are kept, too, or only counted.
    """

    session: str
    state: State
    generation_id: str | None = None
    last_event_id: str | None = None
    reason: str | None = None
    frames: Sequence[Frame] = ()
    journal: bool = False


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


def check_form(db: sqlite3.Connection, path: str | Path) -> None:
    """Refuse a file that a newer version made. Raises ValueError."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise ValueError(f"{path} was made by a newer tokentrail-client (form {version}, known: {VERSION})")


def write_kept(db: sqlite3.Connection, kept: Kept) -> None:
    """Write a position, and the events up to it."""
    known = db.execute(
        "UPDATE sessions SET state = ?, reason = ?, generation_id = coalesce(?, generation_id),"
        " last_event_id = coalesce(?, last_event_id), updated_us = ? WHERE session = ?",
        (kept.state, kept.reason, kept.generation_id, kept.last_event_id, now_us(), kept.session),
    )
    numbered = [(seq, frame) for frame in kept.frames if (seq := frame.seq) is not None]
    if not known.rowcount or not numbered:
        return  # a session that was forgotten in favour of newer ones is read on without a place in the store
    _count(db, kept.session, [(seq, frame.data) for seq, frame in numbered])
    if kept.journal:
        db.executemany(
            "INSERT OR REPLACE INTO events (session, seq, id, event, data) VALUES (?, ?, ?, ?, ?)",
            [(kept.session, seq, frame.id, frame.event, frame.data) for seq, frame in numbered],
        )


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


def read_sessions(db: sqlite3.Connection, which: str, named: tuple[str, ...]) -> list[Stored]:
    """The sessions of which the rest of a SELECT says which."""
    rows = db.execute(_READ + which, named).fetchall()
    return [_stored(row, _ranges(db, row[0])) for row in rows]


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


def now_us() -> int:
    """The wall clock."""
    return time.time_ns() // 1000
