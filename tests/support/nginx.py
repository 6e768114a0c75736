"""A real nginx for a test, by the configuration that users get, with a certificate of its own in the test's folder.

``FOUND`` is the distribution's nginx, installed or unpacked into the virtual environment by ``requirements/nginx``; None where
there is none that speaks TLS and HTTP/2. After it: ``tests.support.http2`` speaks to it.
"""

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import trustme

from tests.support.processes import free_port
from tests.support.sources import ROOT

CONF = ROOT / "compose" / "nginx" / "tokentrail.conf"
NAME = "localhost"
_LOGS = "/var/log/nginx"
_WITHIN_S = 10
_MAIN = """{user}worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 512; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    access_log off;
{servers}
}}
"""


def _find():
    """Give the first nginx that can do what is asked of it here."""
    unpacked = Path(sys.prefix) / "nginx" / "usr" / "sbin" / "nginx"
    installed = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    for binary in filter(None, (installed, str(unpacked))):
        if Path(binary).exists():
            built = subprocess.run([binary, "-V"], capture_output=True, check=False).stderr
            if b"http_v2_module" in built and b"http_ssl_module" in built:
                return binary
    return None


FOUND = _find()


class Nginx:
    """``with Nginx(folder, port, servers) as nginx: await nginx.until_ready()``.

    Args:
        folder: for its configuration, logs and temporary files.
        port: where one of the servers listens.
        servers: text of the http block.

    """

    def __init__(self, folder, port, servers):
        self.folder = folder
        self.port = port
        self._conf = folder / "nginx.conf"
        user = "user root;\n" if os.geteuid() == 0 else ""
        self._conf.write_text(_MAIN.format(user=user, folder=folder, servers=servers))
        self._child = None

    @property
    def said(self):
        """Give all that it has logged."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("*log*")))

    async def reload(self):
        """Take the configuration again, by new workers; what runs ends with the old ones."""
        before = self._workers()
        self._child.send_signal(signal.SIGHUP)
        async with asyncio.timeout(_WITHIN_S):
            while not self._workers() - before:  # noqa: ASYNC110 - another process says it
                await asyncio.sleep(0.01)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._child.terminate()
        try:
            self._child.wait(_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def start(self):
        """Start it (again)."""
        with (self.folder / "start.log").open("ab") as out:
            self._child = subprocess.Popen(
                [FOUND, "-e", str(self.folder / "early.log"), "-p", str(self.folder), "-c", str(self._conf)],
                stdout=out,
                stderr=out,
            )

    def kill(self):
        """End it with all its connections: kill -9 of master and workers."""
        pids = [*map(int, self._workers()), self._child.pid]
        for pid in reversed(pids):
            os.kill(pid, signal.SIGKILL)
        self._child.wait()

    async def until_ready(self):
        """Wait until it takes connections."""
        async with asyncio.timeout(_WITHIN_S):
            while True:
                assert self._child.poll() is None, self.said
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.01)
                else:
                    writer.close()
                    return

    def _workers(self):
        pid = self._child.pid
        return set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


class EdgesNginx(Nginx):
    """The users' configuration in front of two edges, with a certificate of its own.

    Args:
        folder: as above.
        edges: the edges' ports.
        beside: more text for the http block, as other servers.

    """

    def __init__(self, folder, edges, beside=""):
        port = free_port()
        self._authority = trustme.CA()
        issued = self._authority.issue_cert(NAME, "127.0.0.1")
        certificate, key = folder / "certificate.pem", folder / "key.pem"
        issued.private_key_pem.write_to_path(key)
        for part in issued.cert_chain_pems:
            part.write_to_path(certificate, append=True)
        named = {
            "EDGE_1": f"127.0.0.1:{edges[0]}",
            "EDGE_2": f"127.0.0.1:{edges[1]}",
            "LISTEN": f"127.0.0.1:{port}",
            "SERVER_NAME": NAME,
            "CERTIFICATE": str(certificate),
            "CERTIFICATE_KEY": str(key),
        }
        super().__init__(folder, port, rendered(CONF.read_text(), named).replace(_LOGS, str(folder)) + beside)

    @property
    def url(self):
        """Give the address that clients take."""
        return f"https://{NAME}:{self.port}"

    @property
    def trust(self):
        """Give the context of a client that knows its certificate, and speaks HTTP/2 where it is asked to."""
        context = ssl.create_default_context()
        self._authority.configure_trust(context)
        return context

    def edges_of(self, generation_id):
        """Give the addresses of the edges that answered for a generation, in the order in which that ended."""
        lines = (self.folder / "tokentrail.log").read_text().splitlines()
        return [line.split('"')[2].split()[3] for line in lines if generation_id in line]


def rendered(text, named):
    """Put values in the place of ``${NAMES}``; nginx's own $variables stay."""
    for name, value in named.items():
        text = text.replace(f"${{{name}}}", value)
    return text
