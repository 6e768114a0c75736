"""An archive in memory, filled as a sink fills the real one: by the rows of ``sinks``, read back by ``edge.reading.archive``."""

from types import SimpleNamespace

from edge.reading.archive import ArchiveAway
from edge.reading.archive_rows import Found, event_of
from schemas.errors import Poison
from schemas.events import CONTENT_KINDS, TERMINALS
from sinks.intake import EventIntake
from sinks.rows import EVENTS
from tests.support.edge import CODEC

PAGE_ROWS = 4
"""Small, so that every reading crosses pages."""
READ = (
    "partition", "offset", "key_id", "dialect", "kind", "seq", "after_seq", "attempt", "wall", "edge_id", "elapsed_ms",
    "paused_ms", "raw_event", "raw", "canonical", "payload",
)  # fmt: skip


def rows_of(log, codec=CODEC):
    """Give the rows that a sink makes of everything a log in memory holds, in the order of its partitions."""
    intake, rows = EventIntake(codec), []
    for partition, (offset, timestamp_ms, key, value) in log.all_records():
        record = SimpleNamespace(
            topic=EVENTS.topic.name,
            partition=partition,
            offset=offset,
            timestamp=timestamp_ms,
            key=key,
            value=value,
            headers=(),
        )
        try:
            row = intake.row(record)
        except Poison:  # a sink's dead letter
            continue
        if row is not None:
            rows.append(dict(zip(EVENTS.columns, row, strict=True)))
    return rows


class MemoryArchive:
    """The archive's questions, answered from rows; ``away`` makes it silent, ``asked`` counts."""

    def __init__(self, rows=()):
        self.rows = list(rows)
        self.bills = {}
        self.away = False
        self.asked = 0

    async def find(self, tenant, generation_id):
        """See Archive."""
        rows = self._of(tenant, generation_id)
        if not rows:
            return None
        last = rows[-1]
        seqs = [row["seq"] for row in rows if row["seq"] is not None]
        kinds = {row["kind"] for row in rows}
        return Found(
            generation_id,
            tenant,
            rows[0]["key_id"],
            rows[0]["dialect"],
            rows[0]["partition"],
            min(seqs, default=None),
            last["offset"],
            last["wall"],
            ended=bool(kinds & TERMINALS),
            erased="forgotten" in kinds,
            readable=all(row["raw"] is not None for row in rows if row["kind"] in CONTENT_KINDS),
        )

    async def page(self, found, after_offset, from_seq):
        """See Archive."""
        rows = [
            row
            for row in self._of(found.tenant, found.generation_id)
            if row["offset"] > after_offset
            and (
                from_seq is None
                or row["kind"] in (*TERMINALS, "forgotten")
                or (row["seq"] is not None and row["seq"] >= from_seq)
            )
        ][:PAGE_ROWS]
        events = [event_of(found, tuple(row[name] for name in READ)) for row in rows]
        return [event for event in events if event is not None], rows[-1]["offset"] if rows else after_offset

    async def generation_named(self, tenant, upstream_id):
        """See Archive."""
        del tenant, upstream_id

    async def bill(self, tenant, generation_id):
        """See Archive."""
        self._of(tenant, generation_id)
        return self.bills.get((tenant, generation_id), [])

    async def close(self):
        """See Archive."""

    def _of(self, tenant, generation_id):
        self.asked += 1
        if self.away:
            raise ArchiveAway("told to be away")
        mine = [r for r in self.rows if (r["tenant"], r["generation_id"]) == (tenant, generation_id)]
        return sorted(mine, key=lambda row: (row["partition"], row["offset"]))
