"""The JS client library: its own tests, its types, and the real SDKs over it, through real edges and a line that cuts.

What an SDK makes of a stream that was cut many times is what it makes of the provider's own, and the provider was asked
once. The library's own tests play a gateway by script (``edge/clients/js/test``); these have the edges instead.
"""

import json
import random
from contextlib import AsyncExitStack
from itertools import cycle, pairwise, repeat

import pytest

from edge.reading.acks import checksum
from schemas.events import Kind, LogEvent
from tests.support.cutting import Cut, CuttingProxy, refused_head_bytes
from tests.support.dialects import KEY, QUICK, world
from tests.support.edge import CODEC
from tests.support.javascript import CLIENT, NODE_FOLDER, missing, node, run
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
SCRIPT = QUICK | {"tokens": 120, "reasoning_tokens": 6, "tool_call": {}}
PLAIN = QUICK | {"tokens": 300}
STREAMED = {
    "openai chat": SCRIPT,
    "openai responses": SCRIPT,
    "anthropic": SCRIPT,
    "ai openai": SCRIPT,
    "ai anthropic": SCRIPT,
}
WHOLE = {"openai chat whole": PLAIN, "ai whole": PLAIN}
REFUSED = ("openai chat", "openai responses", "anthropic", *WHOLE)
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
DRAWN = {"id", "call_id", "item_id", "tool_call_id"}
HEADS = (Cut(1), Cut(60, "fin"), Cut(200))
BODY_BYTES = 900
"""So far, a connection has said its head and a few events."""


@pytest.fixture
async def two():
    """Give two edges in front of the simulator."""
    async with world() as running:
        yield running


def cuts(seed):
    """A plan: every connection is cut after a random number of bytes, within its head or behind it, by RST or by FIN."""
    draw = random.Random(seed)
    return lambda: Cut(draw.randrange(1, 3_000), draw.choice(("rst", "fin")))


def plan_of(first):
    """A plan: these cuts, then none."""
    left = iter(first)
    return lambda: next(left, Cut())


def bare(value):
    """Give an outcome without what is new in every one."""
    if isinstance(value, dict):
        return {key: bare(item) for key, item in value.items() if key not in DRAWN}
    return [bare(item) for item in value] if isinstance(value, list) else value


async def ask(cases):
    """What the clients make of the cases, one outcome each."""
    said = await run([*node(), "resumed.mjs"], NODE_FOLDER, json.dumps(cases).encode())
    return json.loads(said)


def case(sdk, url, **more):
    """A question for the script."""
    return {"sdk": sdk, "url": url, "key": KEY, "simulate": (STREAMED | WHOLE).get(sdk, SCRIPT), **more}


def iterator(url, path=PATHS[0], **more):
    """A question for our iterator."""
    return case("iterator", url, path=path, **more)


async def test_the_librarys_own_tests():
    """The library keeps its promises towards a gateway of a script: every row of its matrix, and a reader that is killed."""
    tests = sorted(path.name for path in (CLIENT / "test").glob("*.test.js"))
    assert len(tests) >= 6
    fake = (NODE_FOLDER / "node_modules/fake-indexeddb/build/esm/index.js").as_uri()
    arguments = ["--test", "--test-reporter=tap", "--test-timeout=60000", *(f"test/{name}" for name in tests)]
    said = await run([*node(), *arguments], CLIENT, environ={"FAKE_INDEXEDDB": fake})
    assert b"\n# fail 0\n" in said
    assert b"\n# skipped 0\n" in said or b"to compare with" in said


async def test_the_types_are_those_of_the_sources(tmp_path):
    """The sources hold to their types, strictly, and the types that are delivered were made from them."""
    tsc = [*node(), str(NODE_FOLDER / "node_modules/typescript/bin/tsc")]
    roots = ["--typeRoots", str(NODE_FOLDER / "node_modules/@types")]
    await run([*tsc, "--project", str(CLIENT), *roots, "--outDir", str(tmp_path)], CLIENT)
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.d.ts")}
    delivered = {path.relative_to(CLIENT / "types"): path.read_text() for path in (CLIENT / "types").rglob("*")
                 if path.is_file()}  # fmt: skip
    assert made == delivered, "run `npm run types` in edge/clients/js"


async def test_applications_in_typescript_are_checked():
    """The delivered types fit under each SDK, strictly, and refuse what the library would refuse."""
    tsc = [*node(), str(NODE_FOLDER / "node_modules/typescript/bin/tsc")]
    await run([*tsc, "--project", str(NODE_FOLDER)], NODE_FOLDER)


async def test_the_sdks_see_one_stream_over_any_cut(two):
    """Cut every few events, what each SDK accumulates is what it accumulates without us; the provider is asked once."""
    direct = await ask([case(sdk, two.direct, plain=True) for sdk in STREAMED])
    before = len(two.simulator.requests)
    async with CuttingProxy(two.urls[0], cuts(7)) as one, CuttingProxy(two.urls[1], cuts(8)) as other:
        got = await ask([case(sdk, one.url, edges=[other.url]) for sdk in STREAMED])
        cut_count = one.cuts + other.cuts
    for sdk, expected, outcome in zip(STREAMED, direct, got, strict=True):
        assert "raised" not in outcome, (sdk, outcome)
        assert bare(outcome["got"]) == bare(expected["got"]), sdk
        assert outcome["states"][-1] == "COMPLETED"
        assert outcome["states"].count("RESUMING") >= 3, (sdk, outcome["states"])
    assert cut_count >= 3 * len(STREAMED)
    assert len(two.simulator.requests) - before == len(STREAMED)


async def test_a_call_whose_answer_never_came_is_one_call(two):
    """The first three connections of each SDK end within the response head; the provider is asked once all the same."""
    async with AsyncExitStack() as stack:
        lines = [
            await stack.enter_async_context(CuttingProxy(url, plan_of(cuts)))
            for url, cuts in zip(cycle(two.urls), repeat(HEADS, len(STREAMED | WHOLE)), strict=False)
        ]
        got = await ask([case(sdk, line.url) for sdk, line in zip(STREAMED | WHOLE, lines, strict=True)])
        assert [line.cuts for line in lines] == [len(HEADS)] * len(lines)
    assert [outcome for outcome in got if "raised" in outcome] == []
    assert len(two.simulator.requests) == len(got)


async def test_a_refusal_that_was_cut_reaches_each_sdk_whole(two):
    """Cut within its body, a refusal is asked for again: each SDK raises what it raises over a line that holds."""
    unknown = {"key": "nobody's"}
    plain = await ask([case(sdk, two.urls[0], plain=True) | unknown for sdk in REFUSED])
    within = Cut(await refused_head_bytes(two.urls[0]) + 20)
    async with AsyncExitStack() as stack:
        lines = [
            await stack.enter_async_context(CuttingProxy(two.urls[0], plan_of([within]))) for _ in REFUSED
        ]
        got = await ask([case(sdk, line.url) | unknown for sdk, line in zip(REFUSED, lines, strict=True)])
        assert [line.cuts for line in lines] == [1] * len(lines)
    assert [outcome["raised"] for outcome in got] == [outcome["raised"] for outcome in plain]
    assert all("invalid_api_key" in outcome["raised"] or "API key" in outcome["raised"] for outcome in got), (
        got
    )


async def test_an_answer_in_one_piece_that_was_cut_comes_whole(two):
    """A call without a stream, cut within its body, and again while its result is fetched, is the provider's whole answer."""
    direct = await ask([case(sdk, two.direct, plain=True) for sdk in WHOLE])
    async with CuttingProxy(two.urls[0], plan_of([Cut(BODY_BYTES)] * 2 * len(WHOLE))) as line:
        got = await ask([case(sdk, line.url) for sdk in WHOLE])
        assert line.cuts == 2 * len(WHOLE)
    assert [bare(outcome.get("got", outcome)) for outcome in got] == [bare(said["got"]) for said in direct]
    assert len(two.simulator.requests) == 2 * len(WHOLE)


@pytest.mark.parametrize("sdk", ["ai openai", "ai anthropic"])
async def test_the_ai_sdk_over_a_plain_resume_within_a_part(two, sdk):
    """Without our library: cut within reasoning, text or a tool call, the rest behind the id keeps the AI SDK alive; from the start, too."""
    (whole,) = await ask([case(sdk, two.urls[0], plain=True)])
    cuts_at = (1, 2, 4, 7, 40, 100, 127, 130)
    resumed = [case(sdk, two.urls[0], there=two.urls[1], cut=cut) for cut in cuts_at]
    anew = [case(sdk, two.urls[0], there=two.urls[1], cut=cut, mode="from-start") for cut in (5, 60)]
    for asked, outcome in zip(resumed + anew, await ask(resumed + anew), strict=True):
        assert "raised" not in outcome, (asked["cut"], outcome)
        assert bare(outcome["got"]) == bare(whole["got"]), asked["cut"]


async def test_without_us_the_same_line_breaks_the_sdks(two):
    """The unmodified SDKs raise on that line: what the test above sees is the library's doing."""
    async with CuttingProxy(two.urls[0], lambda: Cut(BODY_BYTES + 1_000)) as line:
        got = await ask([case(sdk, line.url, plain=True) for sdk in STREAMED])
    assert [sdk for sdk, outcome in zip(STREAMED, got, strict=True) if "raised" not in outcome] == []


async def test_the_iterator_reads_the_same_over_any_cut(two):
    """In each dialect the items over a line that cuts are those of one that does not: each once, the tool call whole."""
    whole = await ask([iterator(two.urls[0], path) for path in PATHS])
    async with CuttingProxy(two.urls[0], cuts(9)) as one, CuttingProxy(two.urls[1], cuts(10)) as other:
        got = await ask([iterator(one.url, path, edges=[other.url]) for path in PATHS])
        assert one.cuts + other.cuts >= 3 * len(PATHS)
    for outcome, expected in zip(got, whole, strict=True):
        assert outcome["got"] == expected["got"]
        assert outcome["got"]["calls"] == [{"name": "get_weather", "input": {"city": "Zürich", "days": 3}}]
        assert outcome["got"]["ordered"]


async def test_what_the_iterator_acknowledges_is_on_record(two):
    """While a generation runs, its edge records what our iterator has stored; no checksum differs from the edge's own."""
    (got,) = await ask([iterator(two.urls[0]) | {"simulate": PLAIN | {"interval_ms": 4}}])
    assert "raised" not in got, got
    log = two.services[0].log
    records = [CODEC.decode(value, LogEvent) for _, (_, _, _, value) in log.all_records()]
    acked = [said for record in records if record.kind is Kind.CLIENT_ACK for said in record.client.ranges]
    assert [said.first for said in acked[:2]] == [0, 32]
    assert all(after.first == before.last + 1 for before, after in pairwise(acked))
    delivered = [record for record in records if record.seq is not None]
    assert [said.crc32 for said in acked] == [await checksum(delivered, said) for said in acked]


@pytest.mark.parametrize("reader", ["ticket", "eventsource"])
async def test_a_ticket_reads_a_generation_without_a_header(two, reader):
    """Our iterator and an EventSource read a generation by its ticket alone, over a line that cuts."""
    broken = plan_of([Cut(3 * BODY_BYTES, how) for how in ("rst", "fin")])
    async with CuttingProxy(two.urls[0], broken) as one:
        (got,) = await ask([case(reader, one.url) | {"simulate": PLAIN}])
        assert one.cuts >= 1
    assert "raised" not in got, got
    (whole,) = await ask([iterator(two.urls[1]) | {"simulate": PLAIN}])
    assert got["got"] == {name: whole["got"][name] for name in ("text", "finishReason")}


async def test_leaving_the_loop_ends_the_generation(two):
    """`break` in an SDK's loop aborts, and an abort is a cancel: the provider's socket closes, without any grace."""
    slow = {"tokens": 2_000, "ttft_ms": 0, "interval_ms": 20}
    (got,) = await ask([case("openai left", two.urls[0]) | {"simulate": slow}])
    assert got["states"] == ["STREAMING", "CANCELLED"], got
    (seen,) = two.simulator.requests
    await until(lambda: seen.finished_s is not None)
    assert seen.aborted_by_client
