"""Native events to items."""

import json

import pytest
from scripted import cursor
from tokentrail_client.frames import Frame
from tokentrail_client.items import Assembly, Citation, NotFinished, Text, ToolCall


def event(seq, name, **data):
    return Frame(b"", cursor(seq), name, json.dumps({"seq": seq, **data}))


def part(kind, text="", **more):
    return {"type": kind, "text": text, **more}


def assembled(*events):
    assembly = Assembly()
    return assembly, [item for frame in events for item in assembly.take(frame)]


def test_text_comes_as_it_is_said():
    """Text, reasoning and refusals come as they are said; the text is that of the first choice."""
    assembly, items = assembled(
        event(0, "message_start", dialect="openai.chat"),
        event(1, "frame", parts=[]),
        event(2, "delta", parts=[part("reasoning", "hm")]),
        event(3, "delta", parts=[part("text", "a"), part("text", "b", choice_index=1)]),
        event(4, "delta", parts=[part("text", "c"), part("refusal", "no"), part("text", "")]),
        event(5, "citation_delta", parts=[part("citation", "{}", url="http://x.example")]),
    )
    assert [(i.text, i.kind, i.choice) for i in items[:-1]] == [
        ("hm", "reasoning", 0), ("a", "text", 0), ("b", "text", 1), ("c", "text", 0), ("no", "refusal", 0),
    ]  # fmt: skip
    assert isinstance(items[-1], Citation)
    assert assembly.text == "ac"


def test_a_cursor_stands_behind_all_items_of_its_event():
    """Of several items of one event only the last has a cursor: to go on there leaves none of them out."""
    _, items = assembled(event(3, "delta", parts=[part("text", "a"), part("text", "b")]))
    assert [item.cursor for item in items] == [None, cursor(3)]


CALLS = [
    event(1, "tool_call_delta", parts=[part("tool_call", tool_index=0, tool_call_id="c0", name="get")]),
    event(2, "tool_call_delta", parts=[part("tool_call", tool_index=1, tool_call_id="c1", name="put")]),
    event(3, "tool_call_delta", parts=[part("tool_call", '{"a":', tool_index=0)]),
    event(4, "tool_call_delta", parts=[part("tool_call", '{"b": 2}', tool_index=1)]),
    event(5, "tool_call_delta", parts=[part("tool_call", " 1}", tool_index=0)]),
]


def test_a_tool_call_is_given_once_when_it_is_whole():
    """Fragments of several calls, mixed: nothing before the end, then each call once, before the end itself."""
    assembly, before = assembled(*CALLS)
    assert before == []
    items = assembly.take(event(6, "message_end", finish_reason="tool_call"))
    assert [(i.id, i.name, i.parsed()) for i in items[:-1]] == [
        ("c0", "get", {"a": 1}),
        ("c1", "put", {"b": 2}),
    ]
    assert items[-1] is not None
    assert [i.cursor for i in items] == [None, None, cursor(6)]
    assert assembly.end.cut_off == ()


def test_a_tool_call_that_was_cut_off_is_none():
    """A call whose arguments are not whole at the end is named there and not handed over."""
    _, items = assembled(*CALLS[:4], event(5, "message_end", finish_reason="length"))
    assert [i.id for i in items if isinstance(i, ToolCall)] == ["c1"]
    assert [call.id for call in items[-1].cut_off] == ["c0"]


@pytest.mark.parametrize("name", ["message_end", "generation_error"])
def test_no_tool_call_of_what_was_cancelled_or_failed(name):
    """A generation that did not end properly hands over no tool call, however whole it looks."""
    _, items = assembled(*CALLS, event(6, name, finish_reason="cancelled", code="cancelled", message=""))
    assert [i for i in items if isinstance(i, ToolCall)] == []


def test_json_is_there_at_the_end():
    """Half a JSON text is refused, the whole is a value."""
    assembly, _ = assembled(
        event(1, "delta", parts=[part("text", '{"a":')]), event(2, "delta", parts=[part("text", "1}")])
    )
    with pytest.raises(NotFinished):
        assembly.json()
    assembly.take(event(3, "message_end", finish_reason="stop"))
    assert assembly.json() == {"a": 1}


@pytest.mark.parametrize("numbered", [True, False])
def test_an_error_is_told_in_both_its_forms(numbered):
    """The log's error has its code at the top, a connection's own has it inside; text before it is kept."""
    said = {"code": "edge_lost", "message": "gone", "retryable": True}
    frame = Frame(
        b"",
        cursor(2) if numbered else None,
        "generation_error",
        json.dumps(said if numbered else {"error": said}),
    )
    assembly, items = assembled(event(1, "delta", parts=[part("text", "half")]), frame)
    assert (assembly.fault.code, assembly.fault.retryable, assembly.text) == ("edge_lost", True, "half")
    assert items == [Text("half", cursor=cursor(1))]


def test_heartbeats_are_nothing():
    """A native heartbeat is no item."""
    assert Assembly().take(Frame(b"", None, "heartbeat", '{"stage": "decode"}')) == []
