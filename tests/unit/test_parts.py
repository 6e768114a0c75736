"""Records above the size limit: cut, joined, and never joined wrongly."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import Codec
from schemas.errors import Poison
from schemas.events import Kind, LogEvent
from schemas.parts import RECORD_BYTES_MAX, SLICE_BYTES, Joiner, cut
from tests.support.events import log_event, text

CODEC = Codec()


def sized(encoded_bytes, seq=7):
    """Give a record whose encoded size is exactly this: fitted twice, since the length itself is of variable size."""
    record = log_event(Kind.FRAME, seq, raw="x" * 100_000)
    for _ in range(2):
        fill = encoded_bytes - len(CODEC.encode(record))
        record = msgspec.structs.replace(record, raw="x" * (len(record.raw) + fill))
    assert len(CODEC.encode(record)) == encoded_bytes
    return record


def decoded(pieces):
    return [CODEC.decode(piece, LogEvent) for piece in pieces]


def join(records, joiner=None):
    """Give what a joiner makes of these records in this order, without the Nones."""
    joiner = joiner or Joiner(CODEC)
    return [whole for record in records if (whole := joiner.offer(record)) is not None]


def test_limit_is_kafkas():
    """The limit leaves room below Kafka's default of 1,048,588 bytes for key, headers and batch."""
    assert SLICE_BYTES < RECORD_BYTES_MAX == 900_000 < 1_048_588 - 100_000


def test_at_the_edge():
    """A record of exactly the limit is sent whole; one byte more is cut in two."""
    whole = sized(RECORD_BYTES_MAX)
    assert cut(CODEC, whole) == [CODEC.encode(whole)]
    pieces = cut(CODEC, sized(RECORD_BYTES_MAX + 1))
    assert len(pieces) == 2
    assert all(len(piece) <= RECORD_BYTES_MAX for piece in pieces)


@pytest.mark.parametrize("size", [RECORD_BYTES_MAX + 1, 2 * SLICE_BYTES, 2 * SLICE_BYTES + 1, 8 << 20])
def test_joined_equals_the_whole(size):
    """What is cut comes back equal, each part says who it is, and none is above the limit."""
    record = sized(size)
    pieces = cut(CODEC, record)
    parts = decoded(pieces)
    assert max(map(len, pieces)) <= RECORD_BYTES_MAX
    assert [(part.part, part.parts) for part in parts] == [(i, len(parts)) for i in range(len(parts))]
    assert {(part.generation_id, part.tenant, part.kind, part.seq) for part in parts} == {
        (record.generation_id, record.tenant, record.kind, record.seq)
    }
    assert join(parts) == [record]


def test_long_identity_still_fits():
    """Identity fields at their longest do not push a part over the limit."""
    record = msgspec.structs.replace(sized(RECORD_BYTES_MAX + 1), tenant="t" * 4096, key_id="k" * 4096)
    assert all(len(piece) <= RECORD_BYTES_MAX for piece in cut(CODEC, record))


def test_trace_record():
    """A trace record is cut and joined too, by its after_seq."""
    record = log_event(Kind.ATTEMPT_END, after_seq=4, raw="x" * 2_000_000)
    assert join(decoded(cut(CODEC, record))) == [record]


def test_whole_records_pass():
    """A record that was not cut passes at once, also between the parts of another."""
    first, second = decoded(cut(CODEC, sized(RECORD_BYTES_MAX + 1)))
    heartbeat = log_event(Kind.HEARTBEAT, after_seq=6)
    assert join([first, heartbeat, second]) == [heartbeat, sized(RECORD_BYTES_MAX + 1)]


def test_first_offset():
    """The offset of part 0 is kept until the next run: a cursor's reader reaches back to it."""
    joiner = Joiner(CODEC)
    for offset, part in enumerate(decoded(cut(CODEC, sized(2 * SLICE_BYTES + 1))), start=40):
        joiner.offer(part, offset)
    assert joiner.first_offset == 40


P = decoded(cut(CODEC, sized(2 * SLICE_BYTES + 1)))
Q = decoded(cut(CODEC, sized(2 * SLICE_BYTES + 1, seq=8)))
TWO = decoded(cut(CODEC, sized(RECORD_BYTES_MAX + 1)))
BROKEN = {
    "begins in the middle": [P[1], P[2]],
    "a part is missing": [P[0], P[2]],
    "in another order": [P[0], P[2], P[1]],
    "a part twice": [P[0], P[1], P[1], P[2]],
    "of another seq": [P[0], Q[1], P[2]],
    "of another cut": [P[0], TWO[1]],
    "never finished": [P[0], P[1]],
}


@pytest.mark.parametrize("records", BROKEN.values(), ids=BROKEN)
def test_broken_run(records):
    """A run that does not continue gives nothing, and the next whole run is joined all the same."""
    joiner = Joiner(CODEC)
    assert join(records, joiner) == []
    assert join(Q, joiner) == [sized(2 * SLICE_BYTES + 1, seq=8)]


def test_new_start_replaces_the_old():
    """A run that begins again (its writer died and another took over) is joined from its new beginning."""
    assert join([P[0], P[1], *P]) == [sized(2 * SLICE_BYTES + 1)]


@given(st.lists(st.sampled_from([*P, *Q]), max_size=10))
def test_any_order_joins_only_what_is_whole(records):
    """Whatever parts come in whatever order, what is joined is one of the two records, never a mixture."""
    whole = [sized(2 * SLICE_BYTES + 1), sized(2 * SLICE_BYTES + 1, seq=8)]
    assert all(record in whole for record in join(records))


def test_garbage_in_the_slices():
    """Parts that are complete but hold no record are poison, and the joiner is ready for the next run."""
    joiner = Joiner(CODEC)
    bad = [msgspec.structs.replace(part, slice=b"\0" * 20) for part in P]
    with pytest.raises(Poison, match="undecodable"):
        join(bad, joiner)
    assert join(Q, joiner) == [sized(2 * SLICE_BYTES + 1, seq=8)]


@pytest.mark.parametrize(("part", "parts"), [(0, 0), (0, -1), (-1, 3), (3, 3), (5, 3)])
def test_impossible_numbers(part, parts):
    """A part outside of its own count is no run: it joins nothing and breaks nothing."""
    joiner = Joiner(CODEC)
    stray = msgspec.structs.replace(P[0], part=part, parts=parts)
    assert joiner.offer(stray) is None
    assert join(Q, joiner) == [sized(2 * SLICE_BYTES + 1, seq=8)]


def test_a_joined_part_is_poison():
    """Slices that join to yet another part are poison: a record is cut once."""
    inner = CODEC.encode(msgspec.structs.replace(P[0], slice=b"x"))
    with pytest.raises(Poison, match="bad_field"):
        join([msgspec.structs.replace(TWO[0], slice=inner), msgspec.structs.replace(TWO[1], slice=b"")])


def test_a_joined_stranger_is_poison():
    """Slices that join to a record of another generation or seq are poison: the key and the seq were not its own."""
    inner = CODEC.encode(text(99))
    with pytest.raises(Poison, match="bad_field"):
        join([msgspec.structs.replace(TWO[0], slice=inner), msgspec.structs.replace(TWO[1], slice=b"")])
