"""The lexer: where ClickHouse's literals, comments and words begin and end."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.embedded.clickhouse.lexer import tokens

WORDS = {"word", "quoted"}


def names(sql):
    return [token.name for token in tokens(sql) if token.kind in WORDS]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (b"a 'b' c", ["a", "c"]),
        (b"a 'it''s b' c", ["a", "c"]),
        (rb"a 'it\'s b' c", ["a", "c"]),
        (rb"a 'b\\' c", ["a", "c"]),
        (b"a `b c` d", ["a", "b c", "d"]),
        (b"a `b``c` d", ["a", "b`c", "d"]),
        (b'a "b c" d', ["a", "b c", "d"]),
        ("a “b” ‘c’ d".encode(), ["a", "b", "d"]),
        (b"a -- b\nc", ["a", "c"]),
        (b"a # b\nc #! d\ne", ["a", "c", "e"]),
        (b"a // b\nc", ["a", "c"]),
        (b"a /* b /* c */ d", ["a", "d"]),
        (b"a $x$ b $x$ c $$ d $$", ["a", "c"]),
        (b"a$b$c d", ["a$b$c", "d"]),
        (b"a 'b c", ["a"]),
        (b"a /* b c", ["a"]),
        (b"a 'b\\", ["a"]),
        (b"a\x00b", ["a", "b"]),
    ],
)
def test_words_are_found_outside_of_literals(sql, expected):
    """Only what stands outside of strings and comments is a word, quoted names by what they name."""
    assert names(sql) == expected


@given(text=st.text(max_size=60))
def test_a_string_hides_whatever_it_holds(text):
    """A string that is escaped as clients escape it is one token."""
    literal = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    assert names(b"a " + literal.encode("utf-8", "surrogatepass") + b" b") == ["a", "b"]


@given(sql=st.binary(max_size=200))
def test_nothing_is_skipped_but_space_and_comments(sql):
    """Tokens are in order, do not overlap, and are the bytes that stand there; any bytes are cut without an error."""
    at = 0
    for token in tokens(sql):
        assert token.start >= at
        assert sql[token.start : token.end] == token.text
        at = token.end


def test_it_is_lazy():
    """A caller that stops has not paid for what follows."""
    stream = tokens(b"INSERT " + b"'" * 10_000_001)
    assert next(stream).upper == "INSERT"


@pytest.mark.parametrize("piece", [b"'\\", b"''", b"`\\", b'"\\', b"$a", b"/*", b"\\'"])
def test_it_takes_linear_time(piece):
    """No repetition of a half-open literal makes it slow: 200 kB take less than two seconds of this process."""
    started_s = time.process_time()
    assert list(tokens(piece * 100_000))
    assert time.process_time() - started_s < 2
