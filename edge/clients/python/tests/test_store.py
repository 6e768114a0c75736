"""Sessions in SQLite."""

import threading
import zlib

import pytest
from scripted import GENERATION, cursor
from tokentrail_client import State, Store
from tokentrail_client.checksums import EVENTS_PER_RANGE, RANGES_MAX, Range, added, intact
from tokentrail_client.frames import Frame
from tokentrail_client.store import SESSIONS_MAX


def frames(first, last):
    return [Frame(b"", cursor(seq), "delta", f"data {seq}") for seq in range(first, last + 1)]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.db") as opened:
        opened.path = tmp_path / "store.db"
        yield opened


def test_a_session_is_what_was_kept_last(store):
    """What a keep does not name stays as it was; the token follows from the id."""
    store.begin("s", "native", ["http://a.test/v1"])
    store.keep("s", State.STREAMING, generation_id=GENERATION)
    store.keep("s", State.STREAMING, last_event_id=cursor(7), frames=frames(5, 7))
    session = store.get("s")
    assert session.generation_id == GENERATION
    assert (session.state, session.last_event_id) == (State.STREAMING, cursor(7))
    assert session.token == f"resumption_id={GENERATION}&seq=7&sig={'k' * 22}"
    crc = zlib.crc32(b"data 5data 6data 7")
    assert session.checksums == (Range(5, 7, crc),)
    assert store.get("another") is None


def test_a_file_is_read_by_the_next_process(tmp_path):
    """What one store kept another finds, and the journal plays from any number."""
    with Store(tmp_path / "s.db") as store:
        store.begin("s", "native", ["http://a.test/v1"])
        store.keep("s", State.STREAMING, last_event_id=cursor(3), frames=frames(0, 3), journal=True)
        store.keep("s", State.STREAMING, frames=frames(3, 3), journal=True)
    with Store(tmp_path / "s.db") as again:
        assert [frame.seq for frame in again.events("s")] == [0, 1, 2, 3]
        assert again.events("s", after_seq=1) == frames(2, 3)


def test_twenty_sessions_are_kept(store):
    """The newest twenty; an older one is forgotten with its journal, and a session that goes on stays what it was."""
    for number in range(SESSIONS_MAX + 5):
        store.begin(f"s{number}", "native", [])
        store.keep(f"s{number}", State.STREAMING, frames=frames(0, 2), journal=True)
    assert [s.session for s in store.sessions()] == [f"s{n}" for n in range(SESSIONS_MAX + 4, 4, -1)]
    assert store.events("s4") == []
    store.begin("s5", "native", [])
    assert len(store.events("s5")) == 3
    store.keep("s0", State.COMPLETED)
    assert store.get("s0") is None


def test_forgetting_erases_the_words(store):
    """A session that is forgotten leaves no event behind, nor its bytes; meanwhile only the owner may read them."""
    store.begin("s", "native", [])
    store.keep("s", State.STREAMING, frames=frames(0, 2), journal=True)
    store.keep("s", State.STREAMING, frames=[Frame(b"", cursor(3), "delta", "a secret")], journal=True)
    files = [store.path, *store.path.parent.glob(f"{store.path.name}-wal")]
    assert any(b"a secret" in file.read_bytes() for file in files)
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o600"}
    store.forget("s")
    assert (store.get("s"), store.events("s")) == (None, [])
    assert not any(b"a secret" in file.read_bytes() for file in files)


def test_threads_and_stores_share_a_file(tmp_path):
    """Several threads on several stores of one file: every position arrives."""
    stores = [Store(tmp_path / "s.db") for _ in range(2)]

    def work(number):
        store = stores[number % 2]
        store.begin(f"s{number}", "native", [])
        for seq in range(30):
            store.keep(
                f"s{number}",
                State.STREAMING,
                last_event_id=cursor(seq),
                frames=frames(seq, seq),
                journal=True,
            )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {s.last_event_id for s in stores[0].sessions()} == {cursor(29)}
    assert all(len(stores[1].events(f"s{number}")) == 30 for number in range(6))
    for store in stores:
        store.close()


def test_the_store_counts_as_the_function_does(store):
    """Ranges that grew event by event are those of all events at once, the newest of them."""
    events = frames(0, 300) + frames(310, 310 + EVENTS_PER_RANGE * RANGES_MAX)
    store.begin("s", "native", [])
    for at in range(0, len(events), 7):
        store.keep("s", State.STREAMING, frames=events[at : at + 7])
    assert list(store.get("s").checksums) == added([], [(frame.seq, frame.data) for frame in events])


def test_ranges_end_when_they_are_full_or_broken():
    """A range holds 32 events and has no hole; what was counted already is not counted again."""
    events = [(seq, f"d{seq}") for seq in range(1, 2 * EVENTS_PER_RANGE + 2)]
    ranges = added([], [*events, (99, "late"), (98, "too late")])
    assert [(r.first, r.last) for r in ranges] == [(1, 32), (33, 64), (65, 65), (99, 99)]
    assert ranges[0].crc32 == zlib.crc32("".join(data for _, data in events[:32]).encode())
    by_one = []
    for event in events:
        by_one = added(by_one, [event])
    assert by_one == ranges[:3]
    assert len(added([], [(seq * 2, "x") for seq in range(500)])) == RANGES_MAX


def test_a_file_of_a_later_form_is_left_alone(tmp_path):
    """A store that a newer version made is refused, instead of being read wrongly."""
    with Store(tmp_path / "s.db") as store:
        store._db.execute("PRAGMA user_version = 2")
    with pytest.raises(ValueError, match="newer"):
        Store(tmp_path / "s.db")


def test_a_journal_is_believed_as_far_as_it_is_whole():
    """Events without a hole that fit the checksums which cover them; older ones than any checksum are believed."""
    events = [(seq, f"d{seq}") for seq in range(100)]
    ranges = added([], events)
    assert intact(events, ranges) == intact(events, ranges[1:]) == intact(events, ()) == 100
    assert intact([], ranges) == 0
    assert intact([*events[:40], (40, "other"), *events[41:]], ranges) == 32
    assert intact([*events[:40], *events[41:]], ranges) == 32
    assert intact([*events[:40], *events[41:]], ()) == 40
    assert intact(events[:70], ranges) == 64
