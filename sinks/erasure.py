"""What is forgotten on request: which rows go once a batch is stored. Pure.

A ``forgotten`` record stands in the log under its generation's key. When its row is stored, every other row of the
generation goes, and the dead letters under its key; its own row stays, and says so to whoever asks. A log that is read
again brings the rows back and then this record again, so the end is the same. Dead letters are stored by a loop of their
own: those that come after the erasure go with the batch that brought them.

Before: ``loop`` has inserted. After: ``store`` erases, then the loop commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.events import Kind
from schemas.ids import is_uuid7
from sinks.rows import DEAD_LETTERS, EVENTS
from sinks.store import Erasure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.store import Row, Table

_KIND, _TENANT, _ID = (EVENTS.columns.index(name) for name in ("kind", "tenant", "generation_id"))
_KEY = DEAD_LETTERS.columns.index("key")


def erasure_of(table: Table, rows: Sequence[Row]) -> Erasure | None:
    """What rows that were stored ask for; None for nothing."""
    if table is EVENTS:
        found = {(str(r[_TENANT]), str(r[_ID])) for r in rows if r[_KIND] == Kind.FORGOTTEN}
        return Erasure(generations=sorted(found)) if found else None
    if table is DEAD_LETTERS:
        keys = {key.decode(errors="replace") for r in rows if isinstance(key := r[_KEY], bytes)}
        suspects = sorted(key for key in keys if is_uuid7(key))
        return Erasure(suspects=suspects) if suspects else None
    return None
