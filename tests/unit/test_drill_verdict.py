"""The drill's verdict: what a client lacks, has twice, or has in another order is found, whatever kind of client it is."""

import json

import pytest

from tests.drill.__main__ import lines
from tests.drill.verdict import Replayed, Seen, Verdict, compare, said_by

LOG = Replayed([0, 1, 2, 3], ["a", "b", "c", "d"], "hello", "{}")


@pytest.mark.parametrize(
    ("seqs", "data", "verdict"),
    [
        ([0, 1, 2, 3], "abcd", Verdict()),
        ([0, 1, 3], "abd", Verdict(lost=1)),
        ([0, 1, 1, 2, 3], "abbcd", Verdict(repeated=1)),
        ([0, 2, 1, 3], "acbd", Verdict(reordered=1)),
        ([0, 1, 2, 3], "abcX", Verdict(reordered=1)),
        ([], "", Verdict(lost=4)),
    ],
)
def test_a_client_that_shows_events_is_compared_by_them(seqs, data, verdict):
    """A missing event is lost, a second one repeated, an order or a content of its own reordered."""
    assert compare(Seen("any", seqs=seqs, data=list(data)), LOG) == verdict


@pytest.mark.parametrize(
    ("text", "arguments", "verdict"),
    [
        ("hello", "{}", Verdict()),
        ("hell", "{}", Verdict(lost=1)),
        ("hello", "", Verdict(lost=1)),
        ("hellohello", "{}", Verdict(repeated=1)),
        ("olleh", "{}", Verdict(reordered=1)),
    ],
)
def test_a_client_that_shows_text_is_compared_by_its_hash(text, arguments, verdict):
    """A text that is too short, too long or another one counts once."""
    assert compare(Seen("any", text=text, arguments=arguments), LOG) == verdict


def test_text_and_arguments_are_read_from_native_events():
    """Text parts are joined, tool arguments beside them; everything else is neither."""
    parts = [
        {"type": "text", "text": "a"},
        {"type": "reasoning", "text": "x"},
        {"type": "tool_call", "text": "{"},
    ]
    events = [
        json.dumps({"parts": parts}),
        json.dumps({"seq": 1}),
        json.dumps({"parts": [{"type": "tool_call"}]}),
    ]
    assert said_by(events) == ("a", "{")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (True, ["yes"]),
        (0, ["0"]),
        ([], ["none"]),
        ({"openai": 3, "js": 2}, ["openai: 3", "js: 2"]),
        ({"edge-1": {"life_s": 11, "rss_mib": [89, 90]}}, ["edge-1: life_s: 11, rss_mib: [89, 90]"]),
    ],
)
def test_a_figure_is_said_without_braces(value, said):
    """What has parts is one line a part, and what there is none of says so."""
    assert lines(value) == said
