"""What every test may ask of the command line, and the real services that tests share.

A service starts when the first test asks for it and stops with the session. Tests share one broker and one warehouse, so
each takes names of its own: a new generation id, a consumer group of its own, a database of its own. With worker processes
(``make test``) each of them is a session with its own services.
"""

import asyncio
from collections import Counter
from pathlib import Path

import hypothesis
import pytest

from schemas.settings import Resume
from tests.support.kafka import session_kafka
from tests.support.spread import Spread, rank_of

SERVICES = frozenset({"kafka", "clickhouse"})
OWN_VECTORS = Path(__file__).parent / "casebook" / "own"

# How long an example takes is the machine's affair: other work runs beside the tests, and a property is not a benchmark.
hypothesis.settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any-machine")


def pytest_addoption(parser):
    """The casebook's folder is an option of the root, so that it is known whichever folder is collected."""
    group = parser.getgroup("casebook")
    group.addoption(
        "--casebook",
        metavar="DIR",
        type=Path,
        default=OWN_VECTORS,
        help="folder of casebook vectors (*.json); default: this project's own",
    )
    group.addoption(
        "--form",
        metavar="FORM[,FORM]",
        default="",
        help="only vectors of these forms; default: all",
    )


def pytest_collection_modifyitems(config, items):
    """A test that takes a service is marked so: `pytest -m "not services"` runs what needs none."""
    for item in items:
        if SERVICES & set(getattr(item, "fixturenames", ())):
            item.add_marker("services")
    if hasattr(config, "workerinput"):
        items.sort(key=rank_of)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Lots are files, and the long waits come first."""
    return Spread(config, log)


def pytest_terminal_summary(terminalreporter):
    """The casebook's table: form, outcome, number and reason, so that a skip is a known gap, not a silence.

    It stands here because only the root's hooks are called where worker processes run the tests.
    """
    rows = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            form = dict(getattr(report, "user_properties", ())).get("casebook_form")
            if form is not None:
                reason = report.longrepr[-1].removeprefix("Skipped: ") if outcome == "skipped" else ""
                rows[form, outcome, reason] += 1
    if rows:
        terminalreporter.section("casebook")
        for (form, outcome, reason), count in sorted(rows.items()):
            terminalreporter.write_line(f"{form:10} {outcome:8} {count:5}  {reason}".rstrip())


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """Give the bootstrap servers of the session's Kafka: a real one, without any topic yet."""
    with session_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def topics(kafka):
    """Give the bootstrap servers of the session's Kafka with all our topics and schemas on it."""
    from compose.topics import apply

    asyncio.run(apply(kafka, window_days=Resume().window_days))
    return kafka


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory):
    """Give the URL of the session's ClickHouse: the embedded engine behind ClickHouse's own HTTP interface."""
    from tests.support.clickhouse import session_clickhouse
    from tests.support.warehouse import drop_idle

    with session_clickhouse(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server.url
        drop_idle(server.url)
