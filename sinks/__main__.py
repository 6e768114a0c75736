"""``python -m sinks [--accept-loss]``: the sinks of all tables in one process.

Before: the environment. After: ``app``.
"""

import argparse

from schemas.settings import Settings
from schemas.stopping import leave
from sinks.app import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m sinks", description="Kafka to ClickHouse, every table")
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="go on behind records that left the log before they were stored; each range becomes a dead letter",
    )
    leave(main(Settings(), accept_loss=parser.parse_args().accept_loss))
