"""Every way to read a stream takes the same headers: by the generation's id, in either dialect, and by the answer's id."""

import httpx
import pytest
import pytest_asyncio

from edge.sse import SseDecoder
from tests.support.dialects import HEADERS, QUICK, world

ASKED = {"model": "m", "input": "hi", "simulate": QUICK | {"tokens": 5}}
WAYS = ("native", "its dialect", "by its answer")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ways():
    """Read a finished Responses answer in every way, on the edge that made it and on another one."""
    async with world() as two, httpx.AsyncClient(headers=HEADERS, timeout=20) as http:
        begun = await http.post(f"{two.urls[0]}/v1/responses", json=ASKED)
        events = f"/v1/generations/{begun.headers['x-generation-id']}/events"
        paths = {
            "native": events,
            "its dialect": f"{events}?dialect=openai.responses",
            "by its answer": f"/v1/responses/{begun.json()['id']}?stream=true",
        }

        async def read(way, edge, headers):
            answer = await http.get(two.urls[edge] + paths[way], headers=headers)
            return answer, [event.id for event in SseDecoder(1 << 20).feed(answer.content)]

        yield read


def seqs(ids):
    """Give the seqs of signed ids."""
    return [int(text.partition("-")[0]) for text in ids]


@pytest.mark.parametrize("edge", [0, 1])
@pytest.mark.parametrize("way", WAYS)
async def test_every_way_obeys_what_says_where_to_begin(ways, way, edge):
    """Last-Event-ID, a token, and from-start in spite of an id say where the stream begins; a strange mode is refused."""
    _, whole = await ways(way, edge, {})
    assert seqs(whole)[-1] > seqs(whole)[0] + 3
    behind, sig = whole[2], whole[2].split("-", 2)[2]  # a signature may have a hyphen of its own
    for headers in (
        {"last-event-id": behind},
        {"last-event-id": behind, "x-resume-mode": "after-last-id"},
        {"x-resumption-token": f"seq={seqs(whole)[2]}&sig={sig}"},
    ):
        answer, found = await ways(way, edge, headers)
        assert answer.headers["x-resumed-from"] == str(seqs(whole)[2])
        assert seqs(found) == seqs(whole)[3:], headers
    again = {"last-event-id": behind, "x-resume-mode": "from-start"}
    assert seqs((await ways(way, edge, again))[1]) == seqs(whole)
    odd, _ = await ways(way, edge, {"x-resume-mode": "sideways"})
    assert (odd.status_code, odd.json()["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize("headers", [{"x-resume-nack": "1"}, {"x-resumption-checksum": "0-1:00000000"}])
@pytest.mark.parametrize("way", WAYS)
async def test_no_way_ignores_what_is_lacking(ways, way, headers):
    """What a reader lacks is sent again in the native dialect; the others refuse the wish, and do not pass over it."""
    answer, _ = await ways(way, 0, headers)
    if way == "native":
        assert answer.text.count("event: resent") > 0
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
