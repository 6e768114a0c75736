"""The generation id says when to look for it."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import is_uuid7, start_ms, uuid7

RFC_EXAMPLE = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"  # RFC 9562, appendix A.6: 2022-02-22 19:22:22 UTC


def test_rfc_example():
    """The RFC's own example is made from its parts and read back."""
    assert uuid7(0x017F22E279B0, 0xCC3 << 62 | 0x18C4DC0C0C07398F) == RFC_EXAMPLE
    assert start_ms(RFC_EXAMPLE) == 1_645_557_742_000


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**74 - 1))
def test_round_trip(unix_ms, random_bits):
    """Any time and any random bits give a well-formed version 7 that holds the time."""
    made = uuid7(unix_ms, random_bits)
    assert is_uuid7(made)
    assert start_ms(made) == unix_ms
    assert (uuid.UUID(made).version, uuid.UUID(made).variant) == (7, uuid.RFC_4122)


def test_ids_sort_by_time():
    """A later millisecond sorts behind every id of an earlier one."""
    assert uuid7(1_000, 2**74 - 1) < uuid7(1_001, 0)


def test_all_74_bits_count():
    """Each random bit makes another id: none is lost under version or variant."""
    assert len({uuid7(1, 1 << bit) for bit in range(74)}) == 74


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        RFC_EXAMPLE.upper(),
        RFC_EXAMPLE.replace("-", ""),
        f"{{{RFC_EXAMPLE}}}",
        RFC_EXAMPLE + "\n",
        str(uuid.UUID(int=4, version=4)),
        "017f22e2-79b0-7cc3-18c4-dc0c0c07398f",  # another variant
        "٠17f22e2-79b0-7cc3-98c4-dc0c0c07398f",  # a digit that is not ASCII
    ],
)
def test_nothing_else_is_one(text):
    """Other versions, variants and spellings are not ids: a key in the log has one form."""
    assert not is_uuid7(text)
    with pytest.raises(ValueError, match="not a UUIDv7"):
        start_ms(text)
