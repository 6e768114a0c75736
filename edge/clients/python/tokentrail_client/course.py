"""The course of one session: what is asked next, from the call to the terminal. Pure: a generator of effects.

One course serves the transports and the iterators, blocking or not. Invariants: nothing of a frame is handed over before
its position is kept; a frame is handed over once, in order; after the terminal or the application's own abort nothing
is asked any more. Before: ``standing``. After: ``shell`` runs it.
"""

from collections.abc import Callable, Generator
from typing import Any

from tokentrail_client.acks import Acks, repairs
from tokentrail_client.advice import Action, Verdict, retry_after_s, verdict_on
from tokentrail_client.call import ABORT, TOO_LARGE, Call, Stopped, Times, generation_url
from tokentrail_client.effects import (
    Answer,
    Ask,
    Effect,
    Foreign,
    Give,
    Head,
    Keep,
    Lost,
    Opened,
    Read,
    ReadAll,
    Tell,
)
from tokentrail_client.endings import code_of, cut_refusal, message_of
from tokentrail_client.frames import Frame, FrameTooLarge, Splitter
from tokentrail_client.reading import Position
from tokentrail_client.standing import Standing, Steps
from tokentrail_client.states import OnState, State

Again = Generator[Effect, Any, Lost | None]
OK, ACCEPTED, REFUSED = 200, 202, 400
REFUSAL_BYTES_MAX = 1 << 20
"""What a refusal says: a few hundred bytes of an edge, a page of a proxy. Of a longer one only the head is told."""
ANSWER_BYTES_MAX = 64 << 20
"""An answer in one piece; an edge's is below it."""


class Course(Standing):
    """One session.

    Args:
        call: what is asked.
        times: its time-outs.
        now: a monotonic clock in seconds.
        jitter: numbers in [0, 1).
        on_state: told every move.

    """

    def __init__(
        self,
        call: Call,
        times: Times,
        now: Callable[[], float],
        jitter: Callable[[], float],
        on_state: OnState | None = None,
    ) -> None:
        super().__init__(call, times, now, jitter, on_state)
        self.generation_id: str | None = None
        self.position = Position(call.dialect)
        self._acks = Acks() if call.acks else None

    def goes_on(self, generation_id: str | None, journal: list[Frame]) -> None:
        """It has begun already, in another process maybe: what is known of it. Before the first step only."""
        self.generation_id = generation_id
        self.position.fresh(journal)

    def run(self) -> Steps:
        """Every step, to the end. Raises Stopped, or the last connection's own error where no edge was reached."""
        try:
            if self.position.ending:
                self._end()  # the journal has it whole
            elif self.generation_id is None:
                yield from self._begin()
            while not self.state.is_over:
                yield from self._resume()
        except GeneratorExit:
            self._left()
            raise
        except Stopped as stopped:
            if not self.state.is_over:  # it came from outside: the store
                self._to(State.CANCELLED, stopped.reason)
            raise

    def _left(self) -> None:
        """The application goes. Behind the terminal that is the proper end, before it an abort."""
        if not self.state.is_over:
            self._end() if self.position.ending else self._to(State.CANCELLED, ABORT)

    def cancel(self) -> Ask | None:
        """What ends the generation that the application left; None where it has no name, or nothing more to say."""
        left = (self.state, self.reason) == (State.CANCELLED, ABORT) and not self.position.finished
        if self.generation_id is None or not left:
            return None
        return self.call.cancel(self._root(), self.generation_id)

    def _begin(self) -> Steps:
        """Send the call until it is answered; the same Idempotency-Key makes it the same call."""
        call, times = self.call, self._times
        while True:
            self._check()
            if self.state is State.PAUSED:
                self._to(State.CONNECTING)
            silent_s = times.idle_s if call.streams else times.read_s
            got = yield call.asked(self._root(), silent_s)
            lost = got if isinstance(got, Lost) else (yield from self._answered(got))
            if lost is None:
                return
            self._failures += 1
            if self._failures >= times.call_tries:
                self._to(State.CANCELLED, lost.said)
                raise lost.error
            yield from self._pause(lost.said)

    def _answered(self, head: Head) -> Again:
        """What the call's answer leads to; Lost where the call must be sent again."""
        self.generation_id = head.headers.get("x-generation-id") or None
        if head.status != OK or not head.is_stream:
            return (yield from self._whole(head))
        if self.call.insists:
            self._stop("not_supported", "what answers here begins no generation in the background")
        if self.generation_id is None:
            self._to(State.COMPLETED, "not resumable")
            yield Foreign(head)
            return None
        yield Keep(State.STREAMING, self.generation_id)
        self._to(State.STREAMING)
        yield Opened(head)
        yield from self._read()
        return None

    def _whole(self, head: Head) -> Again:
        """An answer that is no stream: the whole of it, a refusal, or the begin of a generation that is read next."""
        if head.status >= REFUSED:
            return (yield from self._refusal(head))
        if self.call.insists and head.status == ACCEPTED and self.generation_id is not None:
            yield ReadAll(REFUSAL_BYTES_MAX, self._times.idle_s)
            yield Keep(
                State.CONNECTING, self.generation_id
            )  # the head says it all, also where the body was cut
            return None
        if self.call.insists or (self.generation_id is None and not head.may_be_an_answer):
            self.generation_id = None
            return Lost(Stopped("not_an_edge", f"what answers here is no edge: {head.kind}"))
        body = yield ReadAll(ANSWER_BYTES_MAX, self._times.read_s)
        if isinstance(body, Lost):
            self._check_size(body)
            if self.generation_id is None:
                return body
            yield from self._result(body.said)
            return None
        self._over_by(head, body)
        yield Answer(head, body)
        return None

    def _refusal(self, head: Head) -> Again:
        """A refusal of the call, whole: it is small, and half of it says nothing. One that was cut is asked for again."""
        verdict = verdict_on(head.status, head.headers)
        body = yield ReadAll(REFUSAL_BYTES_MAX, self._times.idle_s)
        self.generation_id = None
        if self.call.insists and verdict.action is Action.AGAIN:
            self._not_before = self._now() + verdict.wait_s
            said = b"" if isinstance(body, Lost) else body
            return Lost(Stopped(code_of(head.status, said), message_of(head.status, said)))
        if isinstance(body, Lost):
            wait_s = retry_after_s(head.headers) or 0.0
            if not _is_too_large(body) and wait_s <= self._times.idle_s and self._may_fail_again():
                self._not_before = self._now() + wait_s
                return body
            said = cut_refusal(head.status, body.said)
            self._over_by(head, said)
            yield Answer(head, said, own=True)
            return None
        self._over_by(head, body)
        yield Answer(head, body)
        return None

    def _may_fail_again(self) -> bool:
        """Whether a refusal that did not come whole is asked for again; a longer wait than ours is the caller's."""
        return self._failures + 1 < self._times.call_tries

    def _check_size(self, lost: Lost) -> None:
        if _is_too_large(lost):
            self._stop(TOO_LARGE, lost.said)

    def _over_by(self, head: Head, body: bytes) -> None:
        good = head.status < REFUSED
        self._to(State.COMPLETED if good else State.CANCELLED, None if good else code_of(head.status, body))

    def _read(self) -> Steps:
        """Hand over what one connection brings, until it is lost or the terminal came."""
        splitter, position = Splitter(), self.position
        while True:
            got = yield Read()
            if got is None or isinstance(got, Lost):
                self._to(State.PAUSED, "ended early" if got is None else got.said)
                return
            try:
                fresh = position.fresh(splitter.feed(got))
            except FrameTooLarge as error:
                self._stop("frame_too_large", str(error))
            yield from repairs(position.resent)
            if fresh:
                yield Keep(self.position.state, self.generation_id, fresh, position.last_id, position.error)
                yield Give(fresh)
                if any(frame.seq is not None for frame in fresh):
                    self._failures = 0
                    self._progress = self._now()  # after the giving: a slow reader is no silent edge
                yield from self._acknowledge(fresh)
            if position.ending:
                self._end()
                return
            if (pause := position.paused()) is not None:
                self._to(State.PAUSED, pause)
                return
            self._check()

    def _acknowledge(self, fresh: tuple[Frame, ...]) -> Steps:
        """Tell an edge what was stored and handed over; reading goes on whatever becomes of it."""
        if self._acks is None:
            return
        self._acks.took([(seq, frame.data) for frame in fresh if (seq := frame.seq) is not None], self._now())
        ranges = self._acks.due(self._now(), last=self.position.ending is not None)
        if ranges:
            url = generation_url(self._root(), str(self.generation_id), "ack")
            self._acks.answered((yield Tell(self._acks.request(url, self.call.auth, ranges))), self._now())

    def _end(self) -> None:
        """The terminal was handed over, or an error behind which nothing can be had."""
        self._to(self.position.state, self.position.error)

    def _resume(self) -> Steps:
        """Ask one edge for what follows the last id, and read it."""
        if self.state is State.PAUSED:
            yield from self._pause()
            self._to(State.RESUMING)
        self._check()
        lacking = self._acks.lacking() if self._acks else None
        asked = self.call.events(
            self._root(), str(self.generation_id), self.position.last_id, lacking, self._times.idle_s
        )
        got = yield asked
        self._failures += 1  # until an event comes: an edge that opens and closes is no progress
        if isinstance(got, Lost):
            self._to(State.PAUSED, got.said)
            return
        verdict = verdict_on(got.status, got.headers)
        if verdict.action is Action.READ and not (got.is_stream and got.is_of(self.generation_id)):
            self._to(State.PAUSED, f"not this stream: {got.kind}")
        elif verdict.action is Action.READ:
            if self._acks:
                self._acks.reader_id = got.headers.get("x-reader-id", "")
            self._to(State.STREAMING)
            yield from self._read()
        elif verdict.action is Action.DONE:
            self._to(State.COMPLETED)
        else:
            yield from self._refused(got, verdict)

    def _refused(self, head: Head, verdict: Verdict) -> Steps:
        again = verdict.action is Action.AGAIN
        body = yield ReadAll(REFUSAL_BYTES_MAX, self._times.poll_s if again else self._times.idle_s)
        cut, body = (body.said, b"") if isinstance(body, Lost) else (None, body)
        if not again and (cut is None or self._failures >= self._times.call_tries):
            self._stop(code_of(head.status, body), message_of(head.status, body))
        self._not_before = self._now() + verdict.wait_s
        self._to(State.PAUSED, cut or code_of(head.status, body))

    def _result(self, why: str) -> Steps:
        """A call that asked for no stream was cut: its answer, asked for until it is there."""
        while True:
            yield from self._pause(why)
            self._to(State.RESUMING)
            got = yield self.call.result(self._root(), str(self.generation_id), self._times.idle_s)
            body = got if isinstance(got, Lost) else (yield ReadAll(ANSWER_BYTES_MAX, self._times.read_s))
            foreign = not isinstance(got, Lost) and got.status == OK and not got.is_of(self.generation_id)
            if isinstance(body, Lost) or foreign:
                if isinstance(body, Lost):
                    self._check_size(body)
                self._failures += 1
                why = body.said if isinstance(body, Lost) else f"not this answer: {got.kind}"
                continue
            running = got.status == ACCEPTED
            bare = "x-should-retry" not in got.headers  # an edge's refusal is the answer; a proxy's is a cut
            if running or (bare and verdict_on(got.status, got.headers).action is Action.AGAIN):
                self._failures = 0 if running else self._failures + 1
                self._not_before = self._now() + self._times.poll_s
                why = "still running" if running else code_of(got.status, body)
                continue
            self._over_by(got, body)
            yield Answer(got, body)
            return


def _is_too_large(lost: Lost) -> bool:
    return isinstance(lost.error, Stopped) and lost.error.reason == TOO_LARGE
