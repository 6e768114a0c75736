"""One value for live, replay and ClickHouse: it must not depend on how the text was cut."""

import hashlib
import itertools

from hypothesis import given
from hypothesis import strategies as st

from schemas.digest import ContentDigest
from schemas.events import Canonical, PartType


def part(kind=PartType.TEXT, text="", choice_index=0, tool_index=None):
    return Canonical(type=kind, text=text, choice_index=choice_index, tool_index=tool_index)


def digest(*records):
    out = ContentDigest()
    for parts in records:
        out.update(parts)
    return out


def test_documented_value():
    """The hash is SHA-256 over a channel mark and the UTF-8 of its fragments."""
    found = digest([part(text="Grüß ")], [part(text="Gott")])
    assert found.output_hash() == hashlib.sha256("\x1etext.0.0\x1fGrüß Gott".encode()).hexdigest()
    assert found.text_sha256() == hashlib.sha256("Grüß Gott".encode()).hexdigest()
    assert found.content_bytes == found.text_bytes == len("Grüß Gott".encode())


@given(st.text(max_size=40), st.lists(st.integers(0, 40), max_size=6), st.data())
def test_independent_of_the_cut(whole, cuts, data):
    """Any cut of one text, over parts and records, with empty fragments in between, gives the same hashes."""
    points = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    fragments = [part(text=whole[a:b]) for a, b in itertools.pairwise(points)]
    split = data.draw(st.integers(0, len(fragments)))
    found, once = digest(fragments[:split], [], fragments[split:]), digest([part(text=whole)])
    assert (found.output_hash(), found.text_sha256()) == (once.output_hash(), once.text_sha256())


def test_channels_are_told_apart():
    """The same characters as reasoning, in another choice or another tool's arguments, are another output."""
    hashes = {
        digest([one]).output_hash()
        for one in (
            part(text="x"),
            part(PartType.REASONING, "x"),
            part(PartType.REFUSAL, "x"),
            part(text="x", choice_index=1),
            part(PartType.TOOL_CALL, "x", tool_index=0),
            part(PartType.TOOL_CALL, "x", tool_index=1),
            part(PartType.CITATION, "x"),
        )
    }
    assert len(hashes) == 7


def test_order_of_channels_counts():
    """Text before reasoning is not reasoning before text."""
    a, b = part(text="a"), part(PartType.REASONING, "b")
    assert digest([a, b]).output_hash() != digest([b, a]).output_hash()


def test_what_is_not_content_counts_nothing():
    """Finish parts, unknown parts and empty fragments leave the hash of nothing."""
    noise = [part(), part(PartType.FINISH, "stop"), part(PartType.UNKNOWN, "?"), part(PartType.TOOL_CALL, "")]
    found = digest(noise)
    assert found.output_hash() == digest().output_hash() == hashlib.sha256(b"").hexdigest()
    assert found.content_bytes == 0


def test_text_hash_is_the_text_alone():
    """The text's own hash is what a client that joins its deltas computes, whatever stands between them."""
    found = digest([part(text="a")], [part(PartType.REASONING, "hm")], [part(text="b")])
    assert found.text_sha256() == hashlib.sha256(b"ab").hexdigest()
    assert (found.text_bytes, found.content_bytes) == (2, 4)
