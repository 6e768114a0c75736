"""``python -m pipeline``: one worker, until SIGTERM. Settings from the environment and ``tokentrail.toml``.

Before: the supervisor. After: ``app``.
"""

from pipeline.app import build_app, run_worker
from pipeline.logs import configure_logs
from pipeline.slots import take_slot
from schemas.settings import Settings


def main() -> None:
    """Run the worker; exits 0 on SIGTERM or SIGINT, else with the reason on stderr."""
    configure_logs()
    settings = Settings()
    slot = take_slot(settings.pipeline.data_dir)  # held by the open file until the process ends
    run_worker(build_app(settings, slot.name))


if __name__ == "__main__":
    main()
