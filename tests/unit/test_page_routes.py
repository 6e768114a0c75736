"""What the page is served with and reads: its files and their headers, the list of what runs, a generation's state."""

import asyncio
import hashlib
import json
import re
import tomllib
from decimal import Decimal

import pytest

from edge.app import build_app
from edge.reading.archive import Sum
from edge.routes import listing
from edge.routes.page import POLICY, SHARED, assets
from schemas.settings import ApiKey
from tests.support.archive import MemoryArchive
from tests.support.asgi import get, post
from tests.support.running import BODY, edge_with
from tests.support.sources import ROOT
from tests.support.upstream import CUT, DONE, Script, chunk, finish, usage
from tests.support.waiting import until

KEYS = tuple(
    ApiKey(
        id=f"key-{tenant}",
        tenant=tenant,
        sha256=hashlib.sha256(tenant.encode()).hexdigest(),
        roles=("caller",),
    )
    for tenant in ("acme", "globex")
)
ACME, GLOBEX = ({"authorization": f"Bearer {tenant}"} for tenant in ("acme", "globex"))
LIST = "/v1/generations"
QUICK = {"stall_threshold_ms": 40}
NAMES = sorted(assets())
SINKS = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "Function(",
    "srcdoc",
    "DOMParser",
)


async def answer_of(app, path, headers=ACME):
    """GET a path: its status and its JSON."""
    done = await get(app, path, headers).done()
    return done.status, json.loads(done.body)


async def listed(app, query="", headers=ACME):
    """Ask for the list."""
    status, body = await answer_of(app, LIST + query, headers)
    assert status == 200, body
    return body


@pytest.mark.parametrize("path", ["/", *(f"/page/{name}" for name in NAMES)])
async def test_each_file_is_served_with_its_policy_and_its_etag(path):
    """Each file is there without a key, under a policy that lets nothing in, and asked again it is a head only."""
    async with edge_with() as edge:
        app = build_app(edge.service)
        first = await get(app, path).done()
        assert first.status == 200
        assert first.headers["content-security-policy"] == POLICY
        assert first.headers["x-content-type-options"] == "nosniff"
        assert first.headers["cache-control"] == "no-cache"
        tag = first.headers["etag"]
        for shown in (tag, f'"other", W/{tag}', "*"):
            again = await get(app, path, {"if-none-match": shown}).done()
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert (await get(app, path, {"if-none-match": '"other"'}).done()).body == first.body


@pytest.mark.parametrize(
    "name", ["nothing.js", "page.py", "..", "..%2fapp.py", "%2e%2e/app.py", "", "index.html/"]
)
async def test_no_other_file_is_served(name):
    """Only the page's own files have an address: no path leads to another."""
    async with edge_with() as edge:
        assert (await get(build_app(edge.service), f"/page/{name}").done()).status in {404, 307}


@pytest.mark.parametrize("name", NAMES)
def test_the_page_needs_nobody_else(name):
    """No file names another host, has a script or a style within its markup, or hands a text to a parser of markup."""
    text = assets()[name].body.decode()
    assert not [sink for sink in SINKS if sink in text]
    assert not re.findall(r'(?:src|href|from|import)\s*[=(]?\s*["\'](?:https?:)?//', text)
    if name.endswith(".html"):
        assert not re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)


def test_what_the_page_shares_is_installed_with_it():
    """The file that the page has from the client library is in the distribution, whatever else of that is left out."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for path in SHARED:
        name = path.relative_to(ROOT).as_posix()
        assert name.split("/")[0] in wheel["packages"]
        assert not [left_out for left_out in wheel["exclude"] if name.startswith(left_out)]


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js")])
def test_every_module_that_is_imported_is_there(name):
    """A module imports files of the page only, by names that are served."""
    imported = re.findall(r'^import .* from "\./([\w.]+)"', assets()[name].body.decode(), re.MULTILINE)
    assert set(imported) <= set(NAMES)


async def test_the_list_is_of_the_callers_tenant():
    """A tenant sees its own generations, newest first, running and lately ended apart; nobody sees another's."""
    go_on = asyncio.Event()
    script = Script(chunk("a"), go_on, finish(), usage(), DONE)
    async with edge_with(script, keys=KEYS) as edge:
        app = build_app(edge.service)
        streams = [post(app, "/v1/chat/completions", BODY, headers) for headers in (ACME, ACME, GLOBEX)]
        for stream in streams:
            await stream.until(b'"a"')
        body = await listed(app)
        ids = [stream.headers["x-generation-id"] for stream in streams]
        assert [row["generation_id"] for row in body["data"]] == [ids[1], ids[0]]
        assert [row["generation_id"] for row in (await listed(app, headers=GLOBEX))["data"]] == [ids[2]]
        row = body["data"][0]
        assert (row["model"], row["stage"], row["readers"], row["attempts"]) == ("gpt-x", "decode", 1, 1)
        assert (row["terminal"], row["last_seq"]) == (None, 1)
        go_on.set()
        for stream in streams:
            await stream.done()
        assert (await listed(app))["data"] == []
        ended = await listed(app, "?state=finalized")
        assert [row["terminal"]["kind"] for row in ended["data"]] == ["message_end"] * 2
        assert (await listed(app, "?state=any"))["data"] == ended["data"]


async def test_the_list_is_bounded(monkeypatch):
    """More generations than a list holds are said to be more."""
    monkeypatch.setattr(listing, "LISTED_MAX", 1)
    async with edge_with(Script(chunk("a"), finish(), DONE), keys=KEYS) as edge:
        app = build_app(edge.service)
        for more in (False, True):
            await post(app, "/v1/chat/completions", BODY, ACME).done()
            await until(lambda: not edge.service.registry.running())
            body = await listed(app, "?state=any")
            assert (len(body["data"]), body["more"]) == (1, more)


async def test_a_state_that_there_is_not():
    """The list refuses a state that it does not know, and a caller without a key."""
    async with edge_with(keys=KEYS) as edge:
        app = build_app(edge.service)
        status, body = await answer_of(app, f"{LIST}?state=lost")
        assert (status, body["error"]["code"]) == (400, "bad_request")
        assert (await answer_of(app, LIST, {}))[0] == 401


async def test_a_state_tells_the_whole_story():
    """A generation's state has both attempts and their times, the stall, who read it, its usage, and where the rest is."""
    slow = Script(chunk("a"), 0.08, chunk("b"), finish(), usage(3, 2), DONE)
    headers = ACME | {"x-previous-generation-id": "0199c0de-0000-7000-8000-000000000000"}
    async with edge_with(Script(CUT), slow, keys=KEYS, stream=QUICK) as edge:
        app = build_app(edge.service)
        stream = await post(app, "/v1/chat/completions", BODY, headers).done()
        generation_id = stream.headers["x-generation-id"]
        _, state = await answer_of(app, f"{LIST}/{generation_id}")
    first, second = state["attempts"]
    assert (first["outcome"], second["outcome"], second["reason"] != "first") == ("failed", "ok", True)
    assert first["opened_us"] <= first["closed_us"] <= second["opened_us"] <= second["first_content_us"]
    (stall,) = state["stalls"]
    assert (stall["attempt"], stall["start_us"]) == (1, second["first_content_us"])
    assert state["stall_threshold_us"] == 40_000
    assert 80_000 <= stall["length_us"] < 5_000_000
    (reader,) = [record for record in state["trace"] if record["kind"] == "client_attached"]
    assert reader["at_us"] <= first["closed_us"]
    assert state["usage"]["input"] == 3
    assert state["terminal"]["at_us"] >= second["closed_us"]
    assert state["trace_complete"]
    assert state["links"] == {
        "events": f"{LIST}/{generation_id}/events",
        "result": f"{LIST}/{generation_id}/result",
        "cancel": f"{LIST}/{generation_id}/cancel",
        "previous_generation_id": headers["x-previous-generation-id"],
    }


async def test_a_stall_shows_before_its_attempt_has_ended():
    """Of an attempt that runs, a gap between two of its events that is long enough is a stall already."""
    go_on = asyncio.Event()
    async with edge_with(
        Script(chunk("a"), 0.08, chunk("b"), go_on, finish(), DONE), keys=KEYS, stream=QUICK
    ) as edge:
        app = build_app(edge.service)
        stream = post(app, "/v1/chat/completions", BODY, ACME)
        await stream.until(b'"b"')
        _, state = await answer_of(app, f"{LIST}/{stream.headers['x-generation-id']}")
        (stall,) = state["stalls"]
        assert (stall["attempt"], stall["seq"], stall["start_us"]) == (0, 1, state["first_content_us"])
        assert (state["terminal"], state["usage"], state["trace_complete"]) == (None, None, False)
        assert "outcome" not in state["attempts"][0]
        go_on.set()
        await stream.done()


async def test_what_it_cost():
    """A finished generation has the ledger's sums once they are there, unpriced lines beside them; an archive that is away takes nothing else."""
    async with edge_with(Script(chunk("a"), finish(), usage(), DONE), keys=KEYS) as edge:
        app = build_app(edge.service)
        edge.service.archive = archive = MemoryArchive()
        stream = await post(app, "/v1/chat/completions", BODY, ACME).done()
        generation_id = stream.headers["x-generation-id"]
        path = f"{LIST}/{generation_id}"
        _, state = await answer_of(app, path)
        assert (state["provider_cost"], state["customer_charge"]) == (None, None)
        archive.bills["acme", generation_id] = [
            Sum("customer_charge", "EUR", None, 2),
            Sum("provider_cost", "USD", Decimal("0.000025500000000000"), 1),
        ]
        _, state = await answer_of(app, path)
        assert state["provider_cost"] == [
            {"amount": "0.0000255", "currency": "USD", "lines_without_amount": 1}
        ]
        assert state["customer_charge"] == [{"amount": None, "currency": "EUR", "lines_without_amount": 2}]
        archive.away = True
        status, away = await answer_of(app, path)
        assert (status, away) == (200, state | {"provider_cost": None, "customer_charge": None})
