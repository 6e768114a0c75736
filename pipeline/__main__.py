"""``python -m pipeline``: one worker, until SIGTERM. Settings from the environment and ``tokentrail.toml``.

Before: the supervisor. After: ``app``.
"""

import gc

import structlog

from pipeline.app import build_app, run_worker
from pipeline.logs import configure_logs
from pipeline.slots import take_slot
from schemas.settings import Settings
from schemas.stopping import leave

GC_ALLOCATIONS = 50_000
"""The default of 700 walks the records in hand many times a second: a tenth of the fold's CPU when measured, for 5 MiB."""

log = structlog.get_logger(__name__)


def main() -> None:
    """Run the worker; exits 0 on SIGTERM or SIGINT, else with the reason on stderr."""
    configure_logs()
    settings = Settings()
    try:
        slot = take_slot(settings.pipeline.data_dir)  # held by the open file until the process ends
    except (OSError, RuntimeError) as error:
        log.error("the worker cannot start", error=str(error), what_to_do="set TOKENTRAIL_PIPELINE__DATA_DIR")  # noqa: TRY400 - the frames say nothing
        leave(1)
    app = build_app(settings, slot.name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 10, 10)
    run_worker(app)


if __name__ == "__main__":
    main()
