"""Batches of the sinks: bounds, progress, and the name of a block."""

from hypothesis import given
from hypothesis import strategies as st

from sinks.batch import ROW_OVERHEAD_BYTES, Batch, Limits, token_of
from tests.support.records import Raw


def record(offset: int, partition: int = 0, size: int = 10, **changes):
    return Raw("t", partition, offset, b"k", b"x" * size, **changes)


def test_an_empty_batch_is_never_due():
    """Without a record there is nothing to settle, however long it takes."""
    batch = Batch(Limits(rows=1, bytes=1, age_s=1))
    assert not batch.due(1e9)
    assert batch.wait_s(1e9) == 1


def test_a_batch_is_due_by_rows():
    """The row that reaches the bound makes the batch due at once."""
    batch = Batch(Limits(rows=2, bytes=10**9, age_s=100))
    batch.add([record(0)], [(0,)], now=5)
    assert not batch.due(5)
    batch.add([record(1)], [(1,)], now=5)
    assert batch.due(5)


def test_a_batch_is_due_by_bytes():
    """Bytes of records and the overhead of their rows are bounded, also where a part of a record has no row yet."""
    batch = Batch(Limits(rows=100, bytes=2 * (1000 + ROW_OVERHEAD_BYTES), age_s=100))
    batch.add([record(0, size=1000)], [None], now=5)
    assert not batch.due(5)
    batch.add([record(1, size=1000)], [(1,)], now=5)
    assert batch.due(5)


def test_age_counts_from_the_first_record():
    """A trickle of records cannot put off a batch: its first record is settled within the age."""
    batch = Batch(Limits(rows=100, bytes=10**9, age_s=1))
    batch.add([record(0)], [(0,)], now=10.0)
    batch.add([record(1)], [(1,)], now=10.9)
    assert batch.wait_s(10.9) == 1 + 10.0 - 10.9
    assert not batch.due(10.99)
    assert batch.due(11.0)
    assert batch.wait_s(12.0) == 0


def test_a_batch_of_poison_alone_moves_on():
    """Records without a row are progress too: the batch gets due by age and says where to go on."""
    batch = Batch(Limits(rows=100, bytes=10**9, age_s=1))
    batch.add([record(7, partition=3)], [None], now=0)
    assert batch.due(1)
    full = batch.take()
    assert full.rows == []
    assert full.next_offsets == {3: 8}


def test_take_begins_anew():
    """What was taken is not in the next batch, nor does its age count."""
    batch = Batch(Limits(rows=1, bytes=10**9, age_s=1))
    batch.add([record(0)], [(0,)], now=0)
    assert batch.take().rows == [(0,)]
    assert not batch.due(100)
    assert batch.take().next_offsets == {}


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_rows_keep_their_order_and_every_partition_its_place(history):
    """For any mix of partitions and poison: rows in the order read, next offsets one past the last record read."""
    batch = Batch(Limits(rows=1000, bytes=10**9, age_s=1))
    offsets: dict[int, int] = {}
    rows = []
    for partition, is_poison in history:
        offset = offsets.get(partition, -1) + 1
        offsets[partition] = offset
        row = None if is_poison else (partition, offset)
        rows += [row] if row else []
        batch.add([record(offset, partition)], [row], now=0)
    full = batch.take()
    assert full.rows == rows
    assert [(r.partition, r.offset) for r in full.records] == rows
    assert full.next_offsets == {p: offset + 1 for p, offset in offsets.items()}


def test_a_token_names_the_rows():
    """Topic, partitions, first and last offset: equal for equal blocks, different for any part of one."""
    records = [record(4, 1), record(9, 0), record(5, 1), record(7, 1)]
    assert token_of(records) == "t:0:9-9@1796000000000;t:1:4-7@1796000000000"
    assert token_of(records[:2]) != token_of(records)


def test_a_token_tells_a_topic_from_its_successor():
    """A topic that was deleted and made again gives the same offsets at another time: its rows are other rows."""
    assert token_of([record(0, timestamp=1)]) != token_of([record(0, timestamp=2)])
