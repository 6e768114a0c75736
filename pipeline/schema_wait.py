"""A partition that waits for a schema: its records stay in order, the other partitions go on.

Pure: the shell pauses the partition, reads the schemas topic when ``is_due`` says so, and folds the records once the
schema is known or given up. Before: ``fold_service``. After: ``schema_topic``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BACKOFF_FIRST_US = 50_000
BACKOFF_MAX_US = 2_000_000
GIVEN_UP_FOR_US = 60_000_000
"""So long a schema that never came is not waited for again: its records go to the dead letters at once."""


@dataclass(slots=True)
class Waiting:
    """The records of one partition from the first one on that cannot be read yet."""

    fingerprint: str
    records: list[Any]
    deadline_us: int
    retry_us: int
    backoff_us: int = BACKOFF_FIRST_US

    def is_due(self, now_us: int) -> bool:
        """Whether to look the schema up again."""
        return now_us >= self.retry_us

    def again(self, now_us: int) -> None:
        """It was not there; look again later."""
        self.retry_us = now_us + self.backoff_us
        self.backoff_us = min(2 * self.backoff_us, BACKOFF_MAX_US)


class SchemaPatience:
    """How long schemas are waited for, and which were given up lately.

    Args:
        wait_us: then its records are dead letters.
    """

    def __init__(self, wait_us: int) -> None:
        self._wait_us = wait_us
        self._given_up: dict[str, int] = {}

    def wait(self, fingerprint: str, records: Sequence[Any], now_us: int) -> Waiting | None:
        """What to wait with; None where this schema was given up lately."""
        given_up_us = self._given_up.get(fingerprint)
        if given_up_us is not None and now_us - given_up_us < GIVEN_UP_FOR_US:
            return None
        return Waiting(fingerprint, list(records), now_us + self._wait_us, now_us)

    def give_up(self, waiting: Waiting, now_us: int) -> bool:
        """Whether its time is over; if so it is remembered."""
        if now_us < waiting.deadline_us:
            return False
        self._given_up[waiting.fingerprint] = now_us
        return True
