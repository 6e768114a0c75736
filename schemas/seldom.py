"""What the Kafka client says of a broker that is away, said seldom: the same for every process that has one.

It says each failed try of each connection, hundreds a second; six seconds without a broker were 3,300 lines of a stack.
Invariant: our own lines always stand, of those none is a repetition. Before: whichever process sets up its logs.
After: its handler.
"""

import logging
from collections.abc import Sequence

REPEAT_AFTER_S = 5.0
"""Each sentence once in this time, whatever node or partition it names."""
SENTENCES_MAX = 1_000


class Seldom(logging.Filter):
    """Lets each sentence of the noisy libraries pass once per ``REPEAT_AFTER_S``; everything else always."""

    def __init__(self, noisy: Sequence[str] = ("aiokafka",)) -> None:
        super().__init__()
        self._noisy = tuple(noisy)
        self._next_s: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if not record.name.startswith(self._noisy):
            return True
        sentence = (record.name, str(record.msg))
        if record.created < self._next_s.get(sentence, 0.0):
            return False
        if len(self._next_s) >= SENTENCES_MAX:
            self._next_s.clear()
        self._next_s[sentence] = record.created + REPEAT_AFTER_S
        return True
