"""Our partitioner is Kafka's own: a key lies where every other client looks for it."""

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from schemas.partition import murmur2, partition_of, partitions_behind

JAVA_VECTORS = {  # org.apache.kafka.common.utils.UtilsTest.testMurmur2
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), JAVA_VECTORS.items(), ids=lambda value: str(value)[:20])
def test_java_vectors(key, signed):
    """The hash has the values that the Java client's own test lists."""
    assert murmur2(key) == signed % 2**32


@given(st.binary(max_size=64))
def test_same_as_the_producer(key):
    """Any key is hashed as the producer hashes it, so that what we compute is where the record goes."""
    assert murmur2(key) == aiokafka_murmur2(key) % 2**32


@given(st.uuids(), st.integers(1, 64))
def test_range(generation_id, partitions):
    """Every id falls into a partition that exists, also where the hash is negative in Java."""
    assert 0 <= partition_of(str(generation_id).encode(), partitions) < partitions


def test_sign_bit_is_masked():
    """A negative Java hash is masked, not made absolute."""
    assert partition_of(b"21", 32) == (-973932308 & 0x7FFFFFFF) % 32


@given(st.binary(max_size=48), st.binary(min_size=4, max_size=4), st.integers(1, 64))
def test_the_last_word_alone(head, last, partitions):
    """Keys that share all but their last word lie where each of them lies by itself."""
    head = head[: len(head) // 4 * 4]
    assert partitions_behind(head, partitions)(last) == partition_of(head + last, partitions)
