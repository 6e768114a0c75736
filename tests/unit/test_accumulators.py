"""A finished body is assembled as the protocol's own SDK accumulates the same events: run side by side, by hand, no HTTP."""

import json

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from openai import omit
from openai._models import construct_type
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from edge.dialects.spoken import dialect_of
from edge.sse import SseEvent
from tests.support.answers import ANSWERS, PATHS, events_of
from tests.support.events import log_event, proper_end

ENDLESS = {"in band", "cut"}
NOT_ACCUMULATED = {("openai.chat", "citations")}
"""A list without indexes: the SDK's own accumulator refuses it, where ours puts it together."""
OF_THE_SDK = {"parsed", "parsed_arguments", "parsed_output"}
CASES = [
    pytest.param(dialect, name, id=f"{dialect}-{name}")
    for dialect, path in PATHS.items()
    for name, answer in ANSWERS[path].items()
    if answer.status == 200 and name not in ENDLESS and (dialect, name) not in NOT_ACCUMULATED
]


def chat(values):
    """What the openai SDK makes of chunks; a chunk's object becomes that of the whole."""
    state = ChatCompletionStreamState()
    for value in values:
        state.handle_chunk(ChatCompletionChunk.model_validate(value))
    return state.current_completion_snapshot.to_dict() | {"object": "chat.completion"}


def responses(values):
    """What the openai SDK makes of events, also where the answer is incomplete."""
    state = ResponseStreamState(input_tools=omit, text_format=omit)
    for value in values:
        state.handle_event(construct_type(type_=ResponseStreamEvent, value=value))
    return state._completed_response.to_dict() if state._completed_response else values[-1]["response"]


def messages(values):
    """What the anthropic SDK makes of events."""
    snapshot, buffers, read = None, {}, TypeAdapter(RawMessageStreamEvent)
    for value in values:
        if value["type"] != "ping":
            event = read.validate_python(value)
            snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    return snapshot.to_dict()


ACCUMULATORS = {"openai.chat": chat, "openai.responses": responses, "anthropic.messages": messages}


def same(value):
    """A body without nulls, without what the SDK adds of its own, and without what is only in a chunk or event."""
    if isinstance(value, dict):
        kept = {key: same(item) for key, item in value.items() if key not in OF_THE_SDK | {"index", "x_own"}}
        return {key: item for key, item in kept.items() if item is not None and item != []}
    return [same(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("dialect", "name"), CASES)
def test_it_is_what_the_sdk_accumulates(dialect, name):
    """Texts, tools, refusals, reasoning, citations, audio, log probabilities, choices, usage: the same, piece by piece."""
    values = events_of(ANSWERS[PATHS[dialect]][name])
    spoken = dialect_of(dialect)
    state, captured = spoken.new_state(), []
    for value in values:
        captured += state.capture(SseEvent(value.get("type"), json.dumps(value), None, None))
    events = [
        log_event(c.kind, n, raw=c.raw, raw_event=c.raw_event) for n, c in enumerate(captured, 1) if c.kind
    ]
    if not events[-1].is_terminal:
        events.append(proper_end(len(events) + 1))
    assert same(spoken.assemble(events)) == same(ACCUMULATORS[dialect](values))
