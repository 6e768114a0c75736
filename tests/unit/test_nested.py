"""JSON that is nested deeper than it could be written again: it is refused or read as no JSON, and breaks nothing."""

import json

import orjson
import pytest

from edge.dialects.partial_json import load_partial
from edge.dialects.provider_errors import failure_of_body
from edge.dialects.reading import NESTED_MAX, NotJson, load, too_deep
from edge.dialects.spoken import dialect_of
from edge.sse import SseEvent

CHAT = dialect_of("openai.chat")


def nested(levels):
    return '{"a":' * levels + "1" + "}" * levels


def chunk(delta):
    return f'{{"id": "c1", "choices": [{{"index": 0, "delta": {delta}}}]}}'


@pytest.mark.parametrize(
    "delta",
    [
        '{"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": %s}}]}',
        '{"annotations": [{"x": %s}]}',
        '{"x_unknown": %s}',
    ],
)
@pytest.mark.parametrize("levels", [NESTED_MAX, 300, 1000, 5000])
def test_a_chunk_that_could_not_be_written_again_is_not_the_dialect(delta, levels):
    """It is the provider's fault, said as such: neither a bug of the edge nor a half-understood event."""
    (captured,) = CHAT.new_state().capture(SseEvent(None, chunk(delta % nested(levels)), None, None))
    assert captured.failure is not None
    assert captured.failure[0] == "upstream_protocol"


@pytest.mark.parametrize("half", ["", "\\ud83c"])
def test_a_chunk_below_the_limit_is_understood(half):
    """What can be written again is captured as ever, half a surrogate pair in it or not."""
    arguments = nested(NESTED_MAX - 10)[:-2].replace("1}", f'"{half}"}}') + "}}"
    data = chunk(f'{{"tool_calls": [{{"index": 0, "function": {{"name": "f", "arguments": {arguments}}}}}]}}')
    (captured,) = CHAT.new_state().capture(SseEvent(None, data, None, None))
    assert captured.failure is None
    assert captured.canonical[0].text.startswith('{"a":{"a":')


def test_the_limit_is_exact_and_leaves_room():
    """One level decides; a value at the limit can be written inside an answer of ours."""
    at, over = nested(NESTED_MAX), nested(NESTED_MAX + 1)
    assert not too_deep(json.loads(at), len(at))
    assert too_deep(json.loads(over), len(over))
    assert orjson.dumps([[[[load(at)]]]])
    with pytest.raises(NotJson):
        load(over)


def test_an_error_body_that_is_nested_too_deep_keeps_its_status():
    """Its text is kept, its words are not looked for."""
    code, said = failure_of_body(400, b'{"error": {"message": %s}}' % nested(900).encode())
    assert (code, said.status, said.message) == ("bad_request", 400, None)


def test_arguments_that_were_cut_deep_inside_are_shown_as_far_as_can_be_written():
    """The beginning of a deep value is closed where the limit lies."""
    value = load_partial('{"a":' * 400)
    assert orjson.dumps(value)
