"""``python -m compose.embedded.clickhouse --path DIR --port N``: the process that owns the engine.

Purpose: take the folder (or say who holds it), bind the port, give up the host, open the engine, serve, stop in
order. The order is the point: the port before the sandbox (which forbids nothing that is already open), the sandbox
before the engine (whose threads inherit it). Exit codes: 0 stopped on request, 2 cannot start, 3 folder busy, 4 port
busy, 75 asked to stop and not done in its time; the reason is the last line of stderr.

Before it in the flow: ``process`` (which starts it). After it: ``holder``, ``sandbox``, ``engine``, ``server``.
"""

import argparse
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from compose.embedded.clickhouse import holder, sandbox
from compose.embedded.clickhouse.errors import PortBusyError, QueryError, StartError
from compose.embedded.clickhouse.process import STOP_LIMIT_S, environment
from schemas.stopping import Deadline

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
# Half of the machine for the engine, as a server of its own would be given less than all.
_SERVER_MEMORY_SHARE = 0.5
_QUERY_MEMORY_SHARE = 0.25


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    options = _options().parse_args(arguments)
    _begin_with(environment(Path(options.path)), arguments)
    try:
        if options.die_with_owner:
            holder.die_with_parent(options.owner)
        folder = Path(options.path).resolve()
        password = _password(options.password_file, options.host)
        with holder.held(folder, options.owner) as held, _listener(options.host, options.port) as listener:
            url = f"http://{options.host}:{listener.getsockname()[1]}"
            _serve(folder, listener, lambda: held.publish(url), password)
    except StartError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _begin_with(wanted: Mapping[str, str], arguments: list[str] | None) -> None:
    """Go on in this process from its beginning, where its environment is not the one that the engine needs.

    Setting a variable moves the environment to the heap, and the engine's library, which looks for the kernel's auxiliary
    vector behind it, then reads whatever lies there: at some lengths of the environment it crashed while it was loaded.
    """
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        words = sys.argv[1:] if arguments is None else arguments
        program = [sys.executable, "-m", "compose.embedded.clickhouse", *words]
        os.execve(sys.executable, program, {**os.environ, **wanted})  # noqa: S606 - our own command line again


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m compose.embedded.clickhouse", description="Embedded ClickHouse over HTTP"
    )
    parser.add_argument("--path", required=True, help="data folder; held by one process at a time")
    parser.add_argument(
        "--port", type=int, default=8123, help="0 takes a free one (see server.json in the folder)"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--password-file", type=Path, help="password of the user `default`; none is needed without it"
    )
    parser.add_argument(
        "--owner",
        type=int,
        help="pid of the process that starts this one; when it is gone this is a leftover",
    )
    parser.add_argument(
        "--die-with-owner", action="store_true", help="end when the starting thread ends (Linux; for tests)"
    )
    return parser


def _listener(host: str, port: int) -> socket.socket:
    """Bind before anything slow happens, so that a busy port is an error at once."""
    try:
        return socket.create_server((host, port), backlog=512)
    except OSError as error:
        raise PortBusyError(
            f"{host}:{port} cannot be listened on: {error.strerror}. Stop what uses it, or give another --port (0: any)."
        ) from error


def _password(path: Path | None, host: str) -> str:
    """Return the password of the user `default`, empty for none: only this machine is served without one."""
    if path is None:
        if host not in _LOOPBACK:
            raise StartError(
                f"Listening on {host} needs a password: give --password-file, or --host 127.0.0.1."
            )
        return ""
    try:
        return path.read_text().strip()
    except OSError as error:
        raise StartError(f"The password cannot be read from {path}: {error.strerror}.") from error


def _serve(folder: Path, listener: socket.socket, publish: Callable[[], None], password: str) -> None:
    """Confine the process, open the engine, answer until asked to stop."""
    # chdb opens a throw-away engine in the temporary folder when it is imported; /tmp is about to be out of reach.
    # What a killed one left behind goes: the folder is ours.
    temporary = Path(os.environ["TMPDIR"])
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    if not sandbox.confine(folder):
        sys.stderr.write(
            "No Landlock in this kernel: only statement checks keep queries away from the host's files.\n"
        )
    # Imported here: chdb starts threads at import, and only threads started inside of the sandbox are bound by it.
    from compose.embedded.clickhouse.engine import Engine, EngineLimits
    from compose.embedded.clickhouse.server import Account, ClickHouseHttp
    from compose.embedded.clickhouse.serving import serve

    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = EngineLimits(int(memory_bytes * _SERVER_MEMORY_SHARE), int(memory_bytes * _QUERY_MEMORY_SHARE))
    try:
        engine = Engine(folder, limits)
    except QueryError as error:
        raise StartError(f"The engine cannot open {folder}: {error.text}") from error
    application = ClickHouseHttp(engine, Account(password=password))
    publish()
    serve(application, listener, Deadline(STOP_LIMIT_S, _tell_cut))


def _tell_cut() -> None:
    sys.stderr.write(
        f"Not closed {STOP_LIMIT_S:.0f} s after the signal: ending so. Nothing acknowledged is lost.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
