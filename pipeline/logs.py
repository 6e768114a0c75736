"""Log lines of the worker: JSON, one per line, to stderr; those of the libraries too.

Before: ``__main__``. After: whoever reads stderr.
"""

import logging
import sys

import structlog

NOISY = ("aiokafka", "faust", "mode")
"""Libraries whose lines below WARNING say nothing to an operator."""

REPEAT_AFTER_S = 5.0
"""While a broker is away the clients say so hundreds of times a second: each of their sentences once in this time."""
SENTENCES_MAX = 1_000


class Seldom(logging.Filter):
    """Lets each sentence of the noisy libraries pass once per ``REPEAT_AFTER_S``; everything else always.

    Not for our own lines: of those, none is a repetition.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next_s: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if not record.name.startswith(NOISY):
            return True
        sentence = (record.name, str(record.msg))
        if record.created < self._next_s.get(sentence, 0.0):
            return False
        if len(self._next_s) >= SENTENCES_MAX:
            self._next_s.clear()
        self._next_s[sentence] = record.created + REPEAT_AFTER_S
        return True


def configure_logs() -> None:
    """Set up structlog and the standard library's logging, once per process."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    finish: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=finish))
    handler.addFilter(Seldom())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
