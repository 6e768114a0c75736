"""Process: the reference of the fold. A Faust agent that reads the same topic and does nothing, not even decode.

`python -m tests.bench.noop_faust BOOTSTRAP GROUP RECORDS FOLDER` reads so many records from the topic's beginning and
writes `{"records": …, "seconds": …, "cpu_s": …}` of what lies between the first and the last into `result.json` of the
folder (Faust writes to stdout itself). The settings are those of our own worker (`pipeline.app`). Before: `row_fold`.
After: nothing.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import faust

from schemas.topics import EVENTS


def main(bootstrap_servers: str, group: str, records: int, folder: str) -> None:
    """Read, count, say, end."""
    result = Path(folder) / "result.json"
    app = faust.App(
        group,
        broker=f"kafka://{bootstrap_servers}",
        datadir=folder,
        store="memory://",
        autodiscover=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        web_enabled=False,
        key_serializer="raw",
        value_serializer="raw",
        broker_commit_interval=0.5,
        producer_acks=-1,
    )

    @app.agent(app.topic(EVENTS.name), concurrency=1)  # type: ignore[untyped-decorator]
    async def nothing(stream: Any) -> None:
        seen, began_s, began_cpu_s = 0, 0.0, 0.0
        async for _ in stream.events():
            if not seen:
                began_s, began_cpu_s = time.perf_counter(), time.process_time()
            seen += 1
            if seen > records:
                said = {
                    "records": records,
                    "seconds": time.perf_counter() - began_s,
                    "cpu_s": time.process_time() - began_cpu_s,
                }
                result.write_text(json.dumps(said))
                os._exit(0)  # a clean stop of Faust takes a second, and nothing here is to be kept

    faust.Worker(
        app, loglevel="WARN", quiet=True, override_logging=False, redirect_stdouts=False
    ).execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
