"""``python -m compose.embedded.simulator --port N [--seed S]``: serve until SIGTERM or SIGINT."""

import argparse
import asyncio
import signal
import sys

from compose.embedded.simulator.server import Simulator


async def serve(port: int, seed: int) -> None:
    """Serve on 127.0.0.1 and stop in order on a signal."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with Simulator(port=port, seed=seed) as simulator:
        sys.stdout.write(f"simulator ready: {simulator.base_url}\n")
        sys.stdout.flush()
        await stop.wait()


def main() -> int:
    """Read the arguments and serve. A port in use ends with a sentence and status 1."""
    parser = argparse.ArgumentParser(prog="simulator", description="A scripted provider of three dialects.")
    parser.add_argument("--port", type=int, required=True, help="port on 127.0.0.1; 0 picks a free one")
    parser.add_argument(
        "--seed", type=int, default=0, help="mixed into the text of answers that name no seed"
    )
    arguments = parser.parse_args()
    try:
        asyncio.run(serve(arguments.port, arguments.seed))
    except OSError as error:
        sys.stderr.write(f"simulator: cannot listen on 127.0.0.1:{arguments.port}: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
