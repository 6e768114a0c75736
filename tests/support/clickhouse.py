"""A ClickHouse for a test session: the embedded one, or a real server where an environment variable names one."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import clickhouse_connect

from compose.embedded.clickhouse.process import EmbeddedClickHouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clickhouse_connect.driver.asyncclient import AsyncClient
    from clickhouse_connect.driver.client import Client

REAL_URL_VARIABLE = "TOKENTRAIL_TEST_CLICKHOUSE_URL"


@dataclass(frozen=True)
class ClickHouseService:
    """Where the session's ClickHouse answers; `process` is None for a real server."""

    url: str
    process: EmbeddedClickHouse | None

    @property
    def is_embedded(self) -> bool:
        """Tell whether the checks of the embedded server's own refusals apply."""
        return self.process is not None


@contextmanager
def session_clickhouse(tmp_dir: Path) -> Iterator[ClickHouseService]:
    """Run an embedded ClickHouse below `tmp_dir`, stopped at the end and killed with a test runner that dies.

    With TOKENTRAIL_TEST_CLICKHOUSE_URL set, give that server instead: the same tests then prove a real one.

    @pytest.fixture(scope="session")
    def clickhouse(tmp_path_factory):
        with session_clickhouse(tmp_path_factory.mktemp("clickhouse")) as service:
            yield service.url
    """
    real_url = os.environ.get(REAL_URL_VARIABLE, "")
    if real_url:
        yield ClickHouseService(real_url, None)
        return
    with EmbeddedClickHouse(tmp_dir / "clickhouse") as process:
        yield ClickHouseService(process.url, process)


def connect(url: str, **options: Any) -> Client:
    """Give a client for a service's URL; it closes as a context manager."""
    return clickhouse_connect.get_client(**_address(url), **options)


async def connect_async(url: str, **options: Any) -> AsyncClient:
    """Give an asynchronous client for a service's URL."""
    return await clickhouse_connect.get_async_client(**_address(url), **options)


def _address(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "username": parts.username or "default",
        "password": parts.password or "",
        "secure": parts.scheme == "https",
    }
