"""Which generation has a provider's id: told by one edge, known to all, to its own tenant alone."""

import asyncio

import pytest

from edge import registry
from edge.routes.responses import generation_of
from schemas.records import ControlKind, ControlRecord
from tests.support.edge import CODEC
from tests.support.running import edge_with
from tests.support.upstream import Script


def told(alias, generation_id="g1", tenant="acme"):
    """What an edge tells the others."""
    return ControlRecord(
        generation_id=generation_id,
        kind=ControlKind.ALIAS,
        edge_id="edge-9",
        wall_us=1,
        tenant=tenant,
        alias=alias,
    )


@pytest.fixture
async def edge(monkeypatch):
    """Give an edge that waits for news of an unknown id for a moment only."""
    monkeypatch.setattr(registry, "ALIAS_WAIT_S", 0.05)
    async with edge_with(Script(), limit={"aliases_max": 3}) as running:
        yield running


async def test_what_another_edge_tells(edge):
    """An id that another edge told is found, also where it was asked for a moment before."""
    asking = asyncio.ensure_future(edge.service.registry.aliased("resp_1", "acme"))
    await asyncio.sleep(0)
    await edge.log.tell(b"g1", CODEC.encode(told("resp_1")))
    assert await asking == "g1"
    assert await edge.service.registry.aliased("resp_1", "acme") == "g1"


async def test_nobody_told(edge):
    """An id that nobody told is unknown, and nothing is kept of the question."""
    assert await edge.service.registry.aliased("resp_1", "acme") is None
    assert not edge.service.registry._alias_news


async def test_a_tenant_sees_its_own(edge):
    """Two providers may give the same id: each tenant finds its own answer by it, and no other's."""
    for tenant, generation_id in (("acme", "g1"), ("globex", "g2")):
        edge.service.registry.alias(told("resp_1", generation_id, tenant))
    found = [await edge.service.registry.aliased("resp_1", tenant) for tenant in ("acme", "globex", "other")]
    assert found == ["g1", "g2", None]


async def test_the_newest_answer_of_an_id(edge):
    """An id that comes again is the newer answer's."""
    for generation_id in ("g1", "g2"):
        edge.service.registry.alias(told("resp_1", generation_id))
    assert await edge.service.registry.aliased("resp_1", "acme") == "g2"


async def test_memory_is_bounded(edge):
    """Above the limit the oldest are forgotten."""
    for n in range(5):
        edge.service.registry.alias(told(f"resp_{n}", f"g{n}"))
    found = [await edge.service.registry.aliased(f"resp_{n}", "acme") for n in range(5)]
    assert found == [None, None, "g2", "g3", "g4"]


async def test_what_nobody_tells_any_more_is_in_the_archive(edge):
    """An id that control has forgotten is asked of the archive, for the caller's tenant; one that is told is not."""
    asked = []

    class Archive:
        async def generation_named(self, tenant, upstream_id):
            asked.append((tenant, upstream_id))
            return "g-old" if tenant == "acme" else None

        async def close(self):
            """Nothing to close."""

    edge.service.archive = Archive()
    edge.service.registry.alias(told("resp_1"))
    assert await generation_of(edge.service, "resp_1", "acme") == "g1"
    assert await generation_of(edge.service, "resp_0", "acme") == "g-old"
    assert await generation_of(edge.service, "resp_0", "other") is None
    assert asked == [("acme", "resp_0"), ("other", "resp_0")]
