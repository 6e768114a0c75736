"""Which partition a key falls into: murmur2 over the key, as Kafka's Java client does it by default.

One pinned function for every producer and reader of ours, asserted against known vectors. Before: ``topics``. After:
``cursor``.
"""

from collections.abc import Callable

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_WORD_BYTES = 4


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (seed 0x9747b28c) of the bytes, as an unsigned 32-bit number."""
    whole = len(data) - len(data) % _WORD_BYTES
    h = _mixed(_SEED ^ len(data), data[:whole])
    tail = data[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    return _finished(h)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, as ``(murmur2 & 0x7fffffff) % partitions``."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_behind(head: bytes, partitions: int) -> Callable[[bytes], int]:
    """The same of keys that differ in their last word alone: ``head``, of whole words, is hashed once for all of them.

    The function that comes back takes the last four bytes.
    """
    before = _mixed(_SEED ^ len(head) + _WORD_BYTES, head)
    return lambda last: (_finished(_mixed(before, last)) & 0x7FFFFFFF) % partitions


def _mixed(h: int, words: bytes) -> int:
    for i in range(0, len(words), _WORD_BYTES):
        k = int.from_bytes(words[i : i + _WORD_BYTES], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    return h


def _finished(h: int) -> int:
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
