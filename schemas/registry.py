"""The schemas topic, as a rule without a broker: announce what we write, learn what others wrote.

A shell of each process gives ``known`` (the topic's values, read from its beginning) and sends what ``missing``
returns before it writes its first record. A reader that meets an unknown fingerprint reads the topic on and tries again.
Before: ``codec``. After: the shells.
"""

from collections.abc import Iterable

from schemas.codec import Codec


def missing(codec: Codec, present: Iterable[str]) -> dict[str, str]:
    """Fingerprint → schema of the own schemas that the topic does not hold yet."""
    held = set(present)
    return {fp: schema for fp, schema in codec.own_schemas.items() if fp not in held}
