"""Who may what: every route that the document lists, with a key of every role, on an edge in memory."""

import contextlib
import hashlib

import httpx
import pytest
import pytest_asyncio

import edge.registry
from edge.auth import ROLES
from schemas.ids import uuid7
from schemas.records import KeyEntry, KeyHash
from tests.support.dialects import HEADERS, QUICK, world

READ, CALL, END, FORCE = "read", "call", "end", "force"
MAY = {
    "caller": {READ, CALL, END},
    "admin": {READ, CALL, END},
    "operator": {READ, CALL, END, FORCE},
    "analyst": {READ},
    "finance": {READ},
    "guest": set(),  # no role at all, to this version
}
ROUTES = {
    ("POST", "/v1/chat/completions"): CALL,
    ("POST", "/v1/messages"): CALL,
    ("POST", "/v1/responses"): CALL,
    ("GET", "/v1/models"): READ,
    ("GET", "/v1/responses/{response_id}"): READ,
    ("POST", "/v1/responses/{response_id}/cancel"): END,
    ("GET", "/v1/generations"): READ,
    ("GET", "/v1/generations/{generation_id}/events"): READ,
    ("GET", "/v1/generations/{generation_id}"): READ,
    ("GET", "/v1/generations/{generation_id}/result"): READ,
    ("POST", "/v1/generations/{generation_id}/cancel"): END,
    ("POST", "/v1/cancel/{generation_id}"): END,
    ("POST", "/v1/generations/{generation_id}/tickets"): READ,
    ("POST", "/v1/generations/{generation_id}/ack"): READ,
    ("POST", "/v1/generations/{generation_id}/tools/{tool_call_id}"): END,
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/metrics"): None,
}
CANCELS = [
    path
    for (_, path), right in ROUTES.items()
    if right == END and "generation_id}" in path and "tool" not in path
]
BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "input": "hi",
    "simulate": QUICK | {"tokens": 2},
    "status": "succeeded",
}  # fmt: skip

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at():
    """An edge whose keys are named as their roles, an answer of its tenant, and a client; (url, ids, client)."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(edge.registry, "ALIAS_WAIT_S", 0.01)
        async with serving() as found:
            yield found


@contextlib.asynccontextmanager
async def serving():
    async with world() as two, httpx.AsyncClient(timeout=20) as http:
        for role in MAY:
            text = KeyHash(sha256=hashlib.sha256(role.encode()).hexdigest())
            two.services[0].keys.configure(
                f"key-{role}", KeyEntry(tenant="acme", roles=[role], hashes=[text])
            )
        begun = await http.post(f"{two.urls[0]}/v1/responses", json=BODY, headers=HEADERS)
        ids = {
            "response_id": begun.json()["id"],
            "generation_id": begun.headers["x-generation-id"],
            "tool_call_id": "call_1",
        }
        yield two.urls[0], ids, http


def key_of(role):
    """Give the head of a key with one role."""
    return {"authorization": f"Bearer {role}"}


async def test_the_tables_are_whole(at):
    """Every route of the document and every role of the edge stands in the tables above."""
    url, _, http = at
    paths = (await http.get(f"{url}/openapi.json")).json()["paths"]
    assert {(method.upper(), path) for path, item in paths.items() for method in item} == set(ROUTES)
    assert set(MAY) - {"guest"} == set(ROLES)


@pytest.mark.parametrize("role", MAY)
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_each_route_asks_for_its_right(at, method, path, role):
    """A role without the right is 403, with the words of the right; also where the id is nobody's."""
    url, ids, http = at
    right = ROUTES[method, path]
    asked = {"json": BODY} if method == "POST" and "cancel" not in path else {}
    others = {"response_id": "resp_none", "generation_id": uuid7(1, 1), "tool_call_id": "call_1"}
    for names in (ids, others):
        answer = await http.request(method, url + path.format(**names), headers=key_of(role), **asked)
        forbidden = right is not None and right not in MAY[role]
        assert (answer.status_code == httpx.codes.FORBIDDEN) == forbidden, answer.text
        if forbidden:
            assert answer.json()["error"]["code"] == "forbidden"
            assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("role", MAY)
@pytest.mark.parametrize("path", CANCELS)
async def test_force_is_the_operators(at, path, role):
    """A hard cancel takes the operator's role."""
    url, ids, http = at
    answer = await http.post(url + path.format(**ids), json={"mode": "hard"}, headers=key_of(role))
    assert (answer.status_code == httpx.codes.OK) == (FORCE in MAY[role]), answer.text


@pytest.mark.parametrize("role", ["caller", "operator", "analyst"])
async def test_a_ticket_gives_no_more_than_its_key(at, role):
    """Who may not end a generation cannot by a ticket that he asked for; nobody can by force."""
    url, ids, http = at
    one = f"{url}/v1/generations/{ids['generation_id']}"
    ticket = (await http.post(f"{one}/tickets", headers=key_of(role))).json()["ticket"]
    assert (await http.get(f"{one}?ticket={ticket}")).status_code == httpx.codes.OK
    ended = await http.post(f"{one}/cancel?ticket={ticket}")
    assert ended.status_code == (httpx.codes.OK if END in MAY[role] else httpx.codes.FORBIDDEN)
    forced = await http.post(f"{one}/cancel?ticket={ticket}", json={"mode": "hard"})
    assert forced.status_code == httpx.codes.FORBIDDEN
