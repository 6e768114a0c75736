"""One check per key of a ``resume`` vector's ``expect``; a key without a check fails the test.

Before it: ``form_resume`` performed the steps.
"""

import json

from schemas.events import Kind

from .values import within

CANCEL_WITHIN_S = 1.0


def check(play, vector, twins):
    """Every key, and what holds of every vector: no repeat, nothing behind a terminal, one terminal for all."""
    expect = vector["expect"]
    unknown = expect.keys() - CHECKS.keys()
    assert not unknown, f"expect: no check for {sorted(unknown)}"
    for key, wanted in expect.items():
        CHECKS[key](play, wanted, twins)
    everyone = [c for group in play.connections for c in group]
    whole = [c for c in everyone if c.seqs and c.stream.ended_s and c.cut_at is None]
    assert len({c.events[-1][:3] for c in whole}) <= 1, "the same end for everyone"
    by_seq = {}
    for connection in everyone:
        assert connection.seqs == sorted(set(connection.seqs))
        for seq, event in zip(connection.seqs, connection.events, strict=True):
            assert (
                by_seq.setdefault((connection.stream.headers["x-generation-id"], seq), event[:3]) == event[:3]
            )


def connections(play, wanted, twins):
    """Each connect step, and each of its repeats."""
    assert len(play.connections) == len(wanted)
    for group, said in zip(play.connections, wanted, strict=True):
        unknown = said.keys() - CONNECTION.keys()
        assert not unknown, f"connection: no check for {sorted(unknown)}"
        for connection in group:
            for key, value in said.items():
                CONNECTION[key](connection, value)


def _client(connection, wanted):
    assert connection.client == wanted


def _status(connection, wanted):
    assert connection.stream.status == wanted, connection.stream.body


def _status_in(connection, wanted):
    assert connection.stream.status in wanted, connection.stream.body


def _seqs(connection, wanted):
    assert connection.seqs == wanted
    if connection.stream.status != 200:
        assert not connection.stream.events


def _starts_with(connection, wanted):
    assert connection.seqs[: len(wanted)] == wanted
    assert connection.seqs == list(range(wanted[0], wanted[0] + len(connection.seqs)))


def _ended(connection, wanted):
    assert (connection.stream.ended_s is not None) is wanted


def _holds_id_of_seq(connection, wanted):
    assert connection.holds_id.partition("-")[0] == str(wanted)


def _error_code(connection, wanted):
    assert json.loads(connection.stream.body)["error"]["code"] == wanted


def _first_available_seq(connection, wanted):
    assert json.loads(connection.stream.body)["first_available_seq"] == wanted


def _header_absent(connection, wanted):
    assert not set(wanted) & connection.stream.headers.keys()


CONNECTION = {
    "client": _client,
    "status": _status,
    "status_in": _status_in,
    "seqs": _seqs,
    "starts_with": _starts_with,
    "ended": _ended,
    "holds_id_of_seq": _holds_id_of_seq,
    "error_code": _error_code,
    "first_available_seq": _first_available_seq,
    "header_absent": _header_absent,
}


def upstream_calls(play, wanted, twins):
    """Calls that the connections caused."""
    assert play.provider.calls - play.calls_before == wanted


def records_added(play, wanted, twins):
    """Records that the connections caused."""
    assert play.records_added == wanted


def never_from(play, wanted, twins):
    """No byte of these generations, in head or body, of any connection."""
    for label in wanted:
        author = play.authors[label]
        for connection in (c for group in play.connections for c in group):
            said = connection.stream.body + repr(connection.stream.headers).encode()
            assert f"said by {label} ".encode() not in said
            assert author.id.encode() not in said


def same_body_as(play, wanted, twins):
    """The refusal reads like the other vector's: status and body."""
    mine, other = play.connections[-1][0].stream, twins[wanted].connections[-1][0].stream
    assert (mine.status, mine.body) == (other.status, other.body)


def upstream_aborted(play, wanted, twins):
    """Whether the edge closed the provider's connection; after a cancel, soon."""
    assert (play.provider.aborted_s is not None) is wanted
    if wanted and play.cancelled_s is not None:
        assert play.provider.aborted_s - play.cancelled_s <= CANCEL_WITHIN_S


def _terminals(play):
    return [event for _, event in play.log.events(play.generation_id) if event.is_terminal]


def terminals(play, wanted, twins):
    """In the log."""
    assert within(len(_terminals(play)), wanted)


def terminal_reason(play, wanted, twins):
    """Why it ended."""
    (terminal,) = _terminals(play)
    assert terminal.kind is Kind.MESSAGE_END
    assert terminal.message_end.finish_reason == wanted


def invariants(play, wanted, twins):
    """Sentences for people; ``check``, ``upstream_aborted`` and ``terminals`` hold the product to them."""
    assert all(isinstance(sentence, str) for sentence in wanted)


CHECKS = {
    "connections": connections,
    "upstream_calls": upstream_calls,
    "records_added": records_added,
    "never_from": never_from,
    "same_body_as": same_body_as,
    "upstream_aborted": upstream_aborted,
    "terminals": terminals,
    "terminal_reason": terminal_reason,
    "invariants": invariants,
}
