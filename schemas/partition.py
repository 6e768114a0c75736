"""Which partition a key falls into: murmur2 over the key, as Kafka's Java client does it by default.

One pinned function for every producer and reader of ours, asserted against known vectors. Before: ``topics``. After:
``cursor``.
"""

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (seed 0x9747b28c) of the bytes, as an unsigned 32-bit number."""
    length = len(data)
    h = 0x9747B28C ^ length
    for i in range(0, length - length % 4, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    tail = data[length - length % 4 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, as ``(murmur2 & 0x7fffffff) % partitions``."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
