"""A ClickHouse for a test session: the embedded one, or a real server where an environment variable names one."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compose.embedded.clickhouse.process import EmbeddedClickHouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
