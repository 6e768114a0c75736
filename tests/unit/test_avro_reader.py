"""Our own reader and fastavro's give the same values, and the same poison."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec as codec_module
from schemas.avro import RECORDS
from schemas.avro_reader import reader_of
from schemas.codec import HEADER_BYTES, Codec
from schemas.errors import Poison
from tests.support.golden import TYPES, examples, value_of
from tests.support.structs import structs

CODEC = Codec()
EXAMPLES = {
    name: example
    for name, example in examples().items()
    if CODEC._own[TYPES[example["record"]]][0][2:].hex() == example["fingerprint"]
}


def said(decode):
    """A value, or poison with its reason and words, without the address of an object in them."""
    try:
        return decode()
    except Poison as poison:
        return poison.reason, re.sub(r" at 0x\w+", "", str(poison))


def by_codec(data, record):
    """What the codec says."""
    return said(lambda: CODEC.decode(data, record))


def by_fastavro(data, record):
    """What fastavro and msgspec alone say."""
    return said(lambda: codec_module._by_fastavro(data, CODEC._own[record][1], None, record))


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_what_is_written_is_read(record):
    """Any value of any record type is read back by us alone, unless a number in it is too large for the quick way."""
    read = reader_of(record)

    @settings(max_examples=25)
    @given(structs(record, long_max=2**61))
    def compare(value):
        assert read(CODEC.encode(value), HEADER_BYTES) == value

    compare()


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_damaged_bytes_are_judged_as_fastavro_judges_them(record):
    """Of bytes that were cut, lengthened or changed, the codec says what fastavro says: the same value or poison."""

    @settings(max_examples=40)
    @given(structs(record), st.data())
    def compare(value, drawn):
        data = bytearray(CODEC.encode(value))
        for _ in range(drawn.draw(st.integers(0, 3))):
            at = drawn.draw(st.integers(HEADER_BYTES, len(data)))
            with_what = drawn.draw(
                st.binary(max_size=3) | st.sampled_from([b"\0", b"\x01", b"\x02", b"\x80"])
            )
            data[at : at + drawn.draw(st.integers(0, 3))] = with_what
        assert by_codec(bytes(data), record) == by_fastavro(bytes(data), record)

    compare()


@pytest.mark.parametrize("name", EXAMPLES, ids=str)
def test_examples_cut_anywhere(name):
    """Each golden example of today's schema is read by us alone; cut or changed at any byte it is what fastavro says."""
    record, data = TYPES[EXAMPLES[name]["record"]], bytes.fromhex(EXAMPLES[name]["avro_hex"])
    assert reader_of(record)(data, HEADER_BYTES) == value_of(EXAMPLES[name])
    for at in range(HEADER_BYTES, len(data)):
        for bad in (data[:at], data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :]):
            assert by_codec(bad, record) == by_fastavro(bad, record), at
