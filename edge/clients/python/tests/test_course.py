"""The course of a session without any I/O: what it asks, and how long it waits, by a clock that the test moves."""

import json
import zlib

import pytest
from playing import WHOLE
from scripted import GENERATION, HEADERS, cursor, delta, native
from tokentrail_client import Times
from tokentrail_client.call import Call, Stopped
from tokentrail_client.course import Course
from tokentrail_client.effects import (
    Answer,
    Ask,
    Give,
    Head,
    Keep,
    Lost,
    Opened,
    Read,
    ReadAll,
    Repair,
    Tell,
    Wait,
)

STREAM, CUT = Head(200, HEADERS), Lost(ConnectionResetError("cut"))
TIMES = Times(idle_s=60, read_s=600, session_s=3600, backoff_s=1, backoff_max_s=8)


class Play:
    """Runs a course: its asks, reads and waits are answered, and noted."""

    def __init__(self, *answers, times=TIMES, slow_s=0.0, call=None):
        self.now = 100.0
        self.answers = list(answers)
        self.slow_s = slow_s
        self.asked, self.waited, self.given, self.kept = [], [], [], []
        self.told, self.tells, self.repaired = [], [], []
        call = call or Call(
            "s", "openai.chat", ("http://a.test/v1", "http://b.test/v1"), path="/chat/completions"
        )
        self.course = Course(call, times, lambda: self.now, lambda: 1.0)

    def run(self):
        """Play it to its end."""
        steps, told = self.course.run(), None
        while True:
            try:
                effect = steps.send(told)
            except StopIteration:
                return self
            told = self._do(effect)

    def _do(self, effect):
        match effect:
            case Ask():
                self.asked.append(effect)
                return self._next()
            case Read() | ReadAll():
                return self._next()
            case Wait(seconds):
                self.waited.append(seconds)
                self.now += seconds
            case Tell(ask):
                self.told.append(json.loads(ask.body))
                return self.tells.pop(0) if self.tells else (200, b"{}")
            case Repair():
                self.repaired.append(effect)
            case Keep():
                self.kept.append(effect)
            case Give(frames):
                self.given += [frame.raw for frame in frames]
                self.now += self.slow_s
            case Answer():
                self.answer = effect
            case Opened():
                pass
        return None

    def _next(self):
        answer = self.answers.pop(0)
        if isinstance(answer, tuple) and not isinstance(answer, Head | Lost):
            seconds, answer = answer
            self.now += seconds
        return answer


def test_the_wait_doubles_until_an_event_comes():
    """Every failure in a row doubles the wait; an event, and nothing less, makes the next one short again."""
    lost = [CUT, CUT, STREAM, None, STREAM, b": heartbeat\n", CUT]
    play = Play(STREAM, WHOLE[0], CUT, *lost, STREAM, WHOLE[1], CUT, STREAM, b"".join(WHOLE[2:])).run()
    assert play.waited == [1, 2, 4, 8, 8, 1]
    assert play.given == WHOLE


def test_a_slow_reader_is_no_silent_edge():
    """The time that a reader takes for an event is not the edge's: it may be longer than the read time-out."""
    play = Play(STREAM, *[(50, chunk) for chunk in WHOLE], slow_s=700).run()
    assert play.given == WHOLE


def test_events_are_what_counts_as_progress():
    """Cuts over more than the read time-out end nothing as long as events come between them."""
    parts = [part for chunk in WHOLE[:-1] for part in (STREAM, (400, chunk), (100, CUT))]
    play = Play(*parts, STREAM, WHOLE[-1]).run()
    assert play.given == WHOLE


@pytest.mark.parametrize(
    ("times", "reason"),
    [(TIMES, "read_timeout"), (Times(idle_s=60, read_s=1000, session_s=1000), "session_timeout")],
)
def test_heartbeats_alone_end_in_time(times, reason):
    """A generation that only says that it lives is over at the read time-out, or at the session's; no wait is longer."""
    play = Play(STREAM, WHOLE[0], *[(15, b": heartbeat\n")] * 100, times=times)
    with pytest.raises(Stopped) as stopped:
        play.run()
    assert (stopped.value.reason, stopped.value.timed_out) == (reason, True)
    assert play.now - 100 <= (times.read_s + 15)


def test_no_wait_is_longer_than_the_session():
    """A Retry-After beyond the end of the session is not slept through."""
    wait = Head(503, {"x-should-retry": "true", "retry-after": "86400"})
    play = Play(STREAM, CUT, wait, b"")
    with pytest.raises(Stopped):
        play.run()
    assert play.waited == [1, TIMES.read_s - 1]


def test_an_edge_that_asks_to_come_again_is_left_at_once():
    """Behind log_unavailable nothing more is read from that connection, though it is open; the next edge is asked."""
    away = b'data: {"error": {"code": "log_unavailable", "message": "wait"}}\n\n'
    play = Play(STREAM, WHOLE[0] + away + b": more\n", STREAM, b"".join(WHOLE[1:])).run()
    assert play.given == WHOLE
    assert [ask.url.split("/")[2] for ask in play.asked] == ["a.test", "b.test"]


def test_nothing_is_handed_over_behind_the_terminal():
    """What stands behind the terminal in the same bytes is not the generation's."""
    play = Play(
        STREAM, b"".join(WHOLE) + b"data: late\n\n" + f"id: {cursor(9)}\ndata: later\n\n".encode()
    ).run()
    assert play.given == WHOLE


def test_each_giving_is_kept_before_with_its_position():
    """What is kept names the position of the last frame that is given next, and the last one the end."""
    play = Play(STREAM, WHOLE[0] + WHOLE[1], WHOLE[2], WHOLE[3]).run()
    opened, *kept = play.kept
    assert (opened.generation_id, opened.last_id) == (GENERATION, None)
    assert [keep.last_id for keep in kept] == [cursor(2), cursor(3), cursor(4)]
    assert [keep.state.value for keep in kept] == ["streaming", "streaming", "completed"]


def test_silence_is_bounded_by_what_was_asked():
    """A stream may be silent for the idle time, a call that asks for none for the read time."""
    body = Head(200, {"content-type": "application/json"})
    plain = Call("s", "openai.chat", ("http://a.test/v1",), path="/chat/completions", streams=False)
    assert Play(body, b"{}", call=plain).run().asked[0].read_s == TIMES.read_s
    assert {ask.read_s for ask in Play(STREAM, CUT, STREAM, WHOLE[3]).run().asked} == {TIMES.idle_s}


def test_an_edges_own_refusal_of_a_result_is_the_answer():
    """A result that the edge refuses, also for a while, is handed up; a proxy's bare refusal is asked again."""
    plain = Call("s", "openai.chat", ("http://a.test/v1",), path="/chat/completions", streams=False)
    named = Head(200, {"content-type": "application/json", "x-generation-id": GENERATION})
    refused = Head(503, {"x-should-retry": "true"})
    play = Play(named, CUT, Head(502, {}), b"", Head(202, {}), b"{}", refused, b"{}", call=plain).run()
    assert (play.course.state.value, play.course.reason, play.answers) == ("cancelled", "http_503", [])


def test_a_beginning_that_is_cut_behind_its_head_has_begun():
    """A generation that was accepted is read from its events, whether or not the answer's body came whole."""
    insisting = Call("s", "openai.chat", ("http://a.test/v1",), path="/chat/completions", insists=True)
    accepted = Head(202, {"content-type": "application/json", "x-generation-id": GENERATION})
    for body in (b"{}", CUT):
        play = Play(accepted, body, STREAM, WHOLE[3], call=insisting).run()
        assert [ask.url.partition("?")[0].rpartition("/")[2] for ask in play.asked] == [
            "completions",
            "events",
        ]


ACKED = Call("s", "native", ("http://a.test/v1",), path="/chat/completions", acks=True)


NAMED = STREAM


def spans(told):
    """Give first and last of each range of each acknowledgement."""
    return [[(first, last) for first, last, _ in said["ranges"]] for said in told]


def test_events_are_acknowledged_by_32_and_at_the_end():
    """Every 32 events and behind the terminal, by ranges with the CRC-32 over their data: only what was kept and given."""
    events = [delta(seq, "x") for seq in range(40)]
    play = Play(
        NAMED,
        CUT,
        Head(200, {**HEADERS, "x-reader-id": "r-1"}),
        *events,
        native(40, "message_end", finish_reason="stop"),
        call=ACKED,
    ).run()
    assert spans(play.told) == [[(0, 31)], [(32, 40)]]
    datas = [json.dumps({"seq": seq, "parts": [{"type": "text", "text": "x"}]}) for seq in range(32)]
    crc = zlib.crc32("".join(datas).encode())
    assert play.told[0] == {"reader_id": "r-1", "ranges": [[0, 31, f"{crc:08x}"]]}


def test_two_seconds_are_enough_for_an_acknowledgement():
    """A slow stream is acknowledged two seconds after the first event that was not, with the next that comes."""
    events = [(0.9, delta(seq, "x")) for seq in range(6)]
    play = Play(STREAM, *events, native(6, "message_end", finish_reason="stop"), call=ACKED).run()
    assert spans(play.told) == [[(0, 3)], [(4, 6)]]


def test_an_acknowledgement_that_nobody_took_is_said_again():
    """An edge that is away, or has no ear for it, stops no reading: the ranges are said again with the next ones."""
    events = [delta(seq, "x") for seq in range(70)]
    play = Play(STREAM, *events, native(70, "message_end", finish_reason="stop"), call=ACKED)
    play.tells = [CUT, (404, b"")]
    assert spans(play.run().told) == [[(0, 31)], [(0, 31), (32, 63)], [(0, 31), (32, 63), (64, 70)]]


def test_what_an_edge_has_otherwise_is_repaired():
    """Events sent again on the open stream take their places in the store, and nothing is handed over for them."""
    again = (
        b'event: resent\ndata: {"seq": 0, "event": "delta", "data": "{}"}\n\nevent: resent\ndata: broken\n\n'
    )
    end = native(1, "message_end", finish_reason="stop")
    play = Play(STREAM, delta(0, "x"), again, end, call=ACKED).run()
    assert play.repaired == [Repair(0, "delta", "{}")]
    assert play.given == [delta(0, "x"), end]


def test_what_no_open_stream_could_bring_is_asked_for_at_the_next_connect():
    """An acknowledgement that is answered with ranges: they are named once, by X-Resume-Nack."""
    events = [delta(seq, "x") for seq in range(32)]
    end = native(32, "message_end", finish_reason="stop")
    play = Play(STREAM, *events, CUT, STREAM, CUT, STREAM, end, call=ACKED)
    play.tells = [(200, b'{"resent": [], "nack": [[3, 3], [7, 9]]}')]
    play.run()
    assert [ask.headers.get("x-resume-nack") for ask in play.asked] == [None, "3-3,7-9", None]
