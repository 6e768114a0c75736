"""Migrations: ``sql/NNN_*.sql`` in order, each applied once, checked by its hash.

Every statement may run twice (``IF NOT EXISTS``, ``OR REPLACE``), so a crash in the middle of a file, or two sinks that
start at once, are nothing. A file that was applied is never edited: the next number changes what it made. Files above
those known here were applied by a newer version and are left alone.

Before: ``app`` and the CLI call ``apply``. After: ``clickhouse``.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from schemas.errors import TokentrailError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.store import SqlStore

_NAME = re.compile(r"(\d{3})_\w+\.sql")
_ENGINE = "${REPLICATED}"
_BOOK = """
CREATE TABLE IF NOT EXISTS schema_migrations
(
    `number` UInt32 COMMENT 'the file''s number',
    `name` String COMMENT 'the file''s name',
    `hash` String COMMENT 'SHA-256 of its text as it was applied',
    `applied` DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC') COMMENT 'when'
)
ENGINE = ${REPLICATED}ReplacingMergeTree
ORDER BY number
COMMENT 'Which files of sinks/sql were applied here'
"""
_ENTER = """
INSERT INTO schema_migrations (number, name, hash)
SELECT {number:UInt32}, {name:String}, {hash:String}
"""


class MigrationError(TokentrailError):
    """The database was made by other files than these; nothing was changed."""


class Migration(NamedTuple):
    """One file."""

    number: int
    name: str
    text: str

    @property
    def hash(self) -> str:
        """SHA-256 of the text, before any variable is put in."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def shipped() -> list[Migration]:
    """The files of ``sinks/sql``, in order; numbers are unique and without holes."""
    found = [
        Migration(int(match.group(1)), entry.name, entry.read_text())
        for entry in files("sinks").joinpath("sql").iterdir()
        if (match := _NAME.fullmatch(entry.name))
    ]
    found.sort()
    if [m.number for m in found] != list(range(1, len(found) + 1)):
        raise MigrationError(f"numbers must run from 1 without holes: {[m.name for m in found]}")
    return found


def apply(
    store: SqlStore, *, replicated: bool = False, migrations: Sequence[Migration] | None = None
) -> list[str]:
    """Bring a database up to date; the names of the files that were applied now.

    Args:
        store: where.
        replicated: whether tables get Replicated engines (a cluster); what exists is not changed by it.
        migrations: the files, by default those shipped.

    Raises MigrationError where an applied file has another text now, and what the store raises.
    """
    store.command(_rendered(_BOOK, replicated=replicated))
    applied = {
        int(row["number"]): (str(row["name"]), str(row["hash"]))
        for row in store.query("SELECT number, name, hash FROM schema_migrations FINAL")
    }
    wanted = shipped() if migrations is None else migrations
    for migration in wanted:
        name, known = applied.get(migration.number, (migration.name, migration.hash))
        if known != migration.hash:
            raise MigrationError(
                f"{migration.name} differs from {name} that was applied here: "
                "undo the edit and put the change into a new file with the next number"
            )
    done = []
    for migration in wanted:
        if migration.number not in applied:
            for statement in statements(_rendered(migration.text, replicated=replicated)):
                store.command(statement)
            store.command(_ENTER, migration._asdict() | {"hash": migration.hash})
            done.append(migration.name)
    return done


def statements(text: str) -> list[str]:
    """The statements of a file: comments at the line's start gone, split at each ``;`` at a line's end."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in re.split(r";\s*(?:\n|$)", "\n".join(lines)) if part.strip()]


def _rendered(text: str, *, replicated: bool) -> str:
    return text.replace(_ENGINE, "Replicated" if replicated else "")
