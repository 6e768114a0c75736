"""The time-outs of an attempt, as deadlines."""

from edge.driving.watch import USAGE_GRACE, Limits, Watch
from edge.policy.hedging import Silence

LIMITS = Limits(
    queue_us=50,
    ttft_us=200,
    stall_us=30,
    decode_us=400,
    request_us=1_000,
    generation_us=2_000,
    usage_grace_us=20,
)


def watch(at_us=0):
    watched = Watch(LIMITS)
    watched.dispatched(at_us)
    return watched


def test_layers_follow_one_another():
    """No head, no first content, silence after content, silence after the finish: each has its own deadline."""
    watched = watch(10)
    assert watched.deadline() == (60, "queue_timeout")
    watched.head_came()
    assert watched.deadline() == (210, "ttft_timeout")
    watched.content(100)
    assert watched.deadline() == (130, "stall_timeout")
    watched.finished(110)
    assert watched.deadline() == (130, USAGE_GRACE)


def test_what_was_not_sent_has_no_time_of_its_own():
    """Before the dispatch only the whole's time runs."""
    assert Watch(LIMITS).deadline() == (1_000, "timeout")
    assert Watch(LIMITS).silence() is None


def test_silence_is_what_a_hedge_acts_on():
    """Since the dispatch or the last content; a pause of our own and the finish are no silence."""
    watched = watch(10)
    assert watched.silence() == Silence(10, content=False)
    watched.content(100)
    assert watched.silence() == Silence(100, content=True)
    watched.pause(110)
    assert watched.silence() is None
    watched.resume(150)
    assert watched.silence() == Silence(140, content=True)
    watched.finished(160)
    assert watched.silence() is None


def test_first_content_can_bring_the_deadline_nearer():
    """The watch says so, since a timer armed for the first content would fire too late; later content only delays."""
    watched = watch()
    watched.head_came()
    before_us, _ = watched.deadline()
    assert watched.content(5)
    after_us, _ = watched.deadline()
    assert after_us < before_us
    assert not watched.content(10)
    assert watched.deadline()[0] > after_us


def test_content_behind_a_finish_delays_the_grace():
    """A provider that goes on after its finish reason has not finished."""
    watched = watch()
    watched.head_came()
    watched.content(5)
    watched.finished(6)
    watched.content(20)
    assert watched.deadline() == (40, USAGE_GRACE)


def test_timers_stand_still_while_we_pause():
    """What we do not read is not the provider's silence; the whole request goes on."""
    watched = watch()
    watched.head_came()
    watched.content(10)
    watched.pause(20)
    assert watched.deadline() == (410, "decode_timeout")
    watched.resume(320)
    assert watched.deadline() == (340, "stall_timeout")


def test_the_grace_for_usage_stands_still_too():
    """What we do not read behind the finish may be the usage that is awaited."""
    watched = watch()
    watched.head_came()
    watched.content(10)
    watched.finished(20)
    watched.pause(25)
    watched.resume(325)
    assert watched.deadline() == (340, USAGE_GRACE)


def test_behind_the_providers_end_only_the_whole_has_a_time():
    """What is left to do is ours: no time-out of the provider's, and no silence that a hedge could act on."""
    watched = watch()
    watched.head_came()
    watched.content(10)
    watched.ended()
    assert watched.deadline() == (1_000, "timeout")
    assert watched.silence() is None


def test_decoding_and_the_whole_are_bounded():
    """Steady content does not put off the decode time-out, nor a new attempt that of the request."""
    watched = watch()
    watched.head_came()
    for at_us in range(10, 410, 20):
        watched.content(at_us)
    assert watched.expired(409) is None
    assert watched.expired(410) == "decode_timeout"
    watched.dispatched(990)
    assert watched.expired(1_000) == "timeout"
