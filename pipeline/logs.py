"""Log lines of the worker: JSON, one per line, to stderr; those of the libraries too.

Before: ``__main__``. After: whoever reads stderr.
"""

import logging
import sys

import structlog

from schemas.seldom import Seldom

NOISY = ("aiokafka", "faust", "mode")
"""Libraries whose lines below WARNING say nothing to an operator."""


def configure_logs() -> None:
    """Set up structlog and the standard library's logging, once per process."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    finish: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=finish))
    handler.addFilter(Seldom(NOISY))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
