"""The scripted provider, driven by the unmodified openai SDK and, where bytes matter, by a plain socket client."""

import asyncio
import json
import time

import aiohttp
import openai
import pytest

from compose.embedded.simulator import PRESETS, Simulator, SimulatorOptions, command
from compose.embedded.simulator.options import BadScript, UnknownModel, options_of
from compose.embedded.simulator.plan import VOCABULARY, prompt_tokens_of, steps, word

HELLO = [{"role": "user", "content": "Say hello, please"}]
QUICK = {"ttft_ms": 0, "interval_ms": 0}


@pytest.fixture
async def sim():
    async with Simulator(port=0) as simulator:
        yield simulator


@pytest.fixture
async def client(sim):
    async with openai.AsyncOpenAI(base_url=sim.base_url, api_key="k", max_retries=0) as sdk:
        yield sdk


async def stream(client, model="sim-fast", *, usage=True, **script):
    """The chunks of one streamed call."""
    answer = await client.chat.completions.create(
        model=model,
        messages=HELLO,
        stream=True,
        stream_options={"include_usage": usage},
        extra_body={"simulate": QUICK | script},
    )
    return [chunk async for chunk in answer]


def text_of(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


async def ended(sim, index=-1, within_s=2.0):
    """The record of a request once it is finished."""
    deadline_s = time.monotonic() + within_s
    while sim.requests[index].finished_s is None:
        assert time.monotonic() < deadline_s, f"still running: {sim.requests[index]}"
        await asyncio.sleep(0.005)
    return sim.requests[index]


async def test_stream_is_what_openai_sends(client, sim):
    """Role first, then the tokens, the finish, the usage without choices; every chunk with its extra fields."""
    chunks = await stream(client, tokens=5)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    assert text_of(chunks) != ""
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * 6 + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 5
    assert chunks[-1].usage.prompt_tokens == prompt_tokens_of({"messages": HELLO})
    assert {c.id for c in chunks} == {"chatcmpl-sim-000000"}
    assert [c.x_sim["index"] for c in chunks] == list(range(8))
    assert {(c.system_fingerprint, c.service_tier, c.usage is None) for c in chunks[:-1]} == {
        ("fp_simulator", "default", True)
    }
    assert sim.requests[0].chunks_sent == 9  # the [DONE] marker too
    assert sim.requests[0].end == "done"


async def test_usage_only_when_asked_and_reported(client):
    """No usage chunk without include_usage, and none from a provider that reports none."""
    assert (await stream(client, tokens=1, usage=False))[-1].choices
    assert (await stream(client, tokens=1, cached_tokens=2))[
        -1
    ].usage.prompt_tokens_details.cached_tokens == 2
    unreported = await client.chat.completions.create(
        model="sim-fast", messages=HELLO, extra_body={"simulate": QUICK | {"usage": False}}
    )
    assert unreported.usage is None


async def test_text_depends_on_the_seed_alone(client):
    """The same seed gives the same text, streamed or not; another seed another one; without seed the prompt decides."""
    one, same, other = [text_of(await stream(client, tokens=20, seed=s)) for s in (1, 1, 2)]
    assert one == same == "".join(word(1, i) for i in range(20))
    assert one != other
    whole = await client.chat.completions.create(
        model="sim-fast", messages=HELLO, extra_body={"simulate": QUICK | {"tokens": 20, "seed": 1}}
    )
    assert whole.choices[0].message.content == one
    assert whole.usage.completion_tokens == 20
    assert text_of(await stream(client, tokens=9)) == text_of(await stream(client, tokens=9))


async def test_the_whole_vocabulary_arrives(client):
    """Line ends, quotes, U+2028, fake frames, emoji and CJK come through the SDK unchanged."""
    tokens = len(VOCABULARY) * 12
    seen = {c.choices[0].delta.content for c in await stream(client, tokens=tokens, seed=3) if c.choices}
    assert seen >= set(VOCABULARY)


async def test_max_tokens_cuts_with_length(client):
    """The request's own limit ends the answer in ``length``, as a provider does."""
    answer = await client.chat.completions.create(
        model="sim-fast", messages=HELLO, max_completion_tokens=3, extra_body={"simulate": QUICK}
    )
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 3)


async def test_tool_call_in_fragments(client):
    """The arguments of a tool call come in pieces that join to the script's JSON, and finish in tool_calls."""
    chunks = await stream(client, "sim-tool")
    calls = [c.choices[0].delta.tool_calls[0] for c in chunks if c.choices and c.choices[0].delta.tool_calls]
    assert (calls[0].id, calls[0].function.name) == ("call_sim_0", "get_weather")
    assert json.loads("".join(c.function.arguments for c in calls)) == {"city": "Zürich", "days": 3}
    assert len(calls) > 3
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    whole = await client.chat.completions.create(
        model="sim-tool", messages=HELLO, extra_body={"simulate": QUICK}
    )
    assert json.loads(whole.choices[0].message.tool_calls[0].function.arguments)["days"] == 3


async def test_reasoning_comes_first(client):
    """Reasoning deltas precede the text and are part of the completion tokens."""
    chunks = await stream(client, tokens=3, reasoning_tokens=2)
    kinds = ["r" if hasattr(c.choices[0].delta, "reasoning_content") else "t" for c in chunks[1:6]]
    assert kinds == list("rrttt")
    assert chunks[-1].usage.completion_tokens == 5
    assert chunks[-1].usage.completion_tokens_details.reasoning_tokens == 2


@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "rate_limit_exceeded"), (503, "overloaded"), (500, None), (401, "invalid_api_key")],
)
async def test_status(client, status, code):
    """A scripted status comes with the dialect's error body and its Retry-After."""
    with pytest.raises(openai.APIStatusError) as refused:
        await stream(client, status=status, retry_after_s=7)
    assert refused.value.status_code == status
    assert refused.value.body["code"] == code
    assert refused.value.response.headers["retry-after"] == "7"


async def test_error_in_band(client, sim):
    """After so many tokens an error object takes the place of the rest; the SDK raises it."""
    with pytest.raises(openai.APIError, match="had an error"):
        await stream(client, "sim-error")
    assert (await ended(sim)).chunks_sent == 1 + 10 + 1
    with pytest.raises(openai.APIError, match="kv cache"):
        await stream(client, error_after=0, error={"message": "kv cache full", "code": "oom"})


@pytest.mark.parametrize(("how", "raised"), [("cut_after", None), ("reset_after", ConnectionResetError)])
async def test_untimely_end(sim, how, raised):
    """Cut is a FIN and reset a RST after exactly so many tokens, both without the body's end mark."""
    body = json.dumps(
        {"model": "m", "messages": HELLO, "stream": True, "simulate": QUICK | {how: 4}}
    ).encode()
    reader, writer = await asyncio.open_connection(sim.host, sim.port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: s\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    answer, error = b"", None
    try:
        while read := await reader.read(65536):
            answer += read
    except ConnectionResetError as reset:
        error = type(reset)
    writer.close()
    assert (answer.count(b"data: {"), error) == (1 + 4, raised)
    assert not answer.endswith(b"0\r\n\r\n")
    record = await ended(sim)
    assert (record.end, record.aborted_by_client) == (how.removesuffix("_after"), False)


@pytest.mark.parametrize("script", [{"silent": True}, {"hang_after": 2}, {"stalls": [[2, 60_000]]}])
async def test_a_client_that_leaves_is_noticed_in_silence(sim, script):
    """Closing the connection while the provider is silent is on record at once as the client's doing."""
    body = {"model": "m", "messages": HELLO, "stream": True, "simulate": QUICK | script}
    async with aiohttp.ClientSession() as session:
        with pytest.raises(asyncio.TimeoutError):
            async with (
                asyncio.timeout(0.2),
                session.post(f"{sim.base_url}/chat/completions", json=body) as answer,
            ):
                await answer.read()
    record = await ended(sim)
    assert (record.end, record.aborted_by_client) == ("aborted", True)
    assert record.chunks_sent == (0 if "silent" in script else 3)


async def test_records_over_http(client, sim):
    """What the provider saw can be read from another process, without the client's key."""
    await stream(client, tokens=2, tag="t1")
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{sim.port}/_sim/requests") as answer,
    ):
        [record] = await answer.json()
    assert (record["tag"], record["stream"], record["end"], record["aborted_by_client"]) == (
        "t1",
        True,
        "done",
        False,
    )
    assert "authorization" not in record["headers"]


async def test_script_of_attempts(client):
    """A list scripts successive calls of one simulate_id: first refused, then good, and so on."""
    body = {"simulate": [{"status": 503}, QUICK | {"tokens": 1}], "simulate_id": "a"}
    with pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model="m", messages=HELLO, extra_body=body)
    for _ in range(2):
        answer = await client.chat.completions.create(model="m", messages=HELLO, extra_body=body)
        assert answer.usage.completion_tokens == 1


async def test_models_and_unknown_model(client):
    """The presets are listed; a model that is none of them is the provider's 404."""
    assert [m.id async for m in client.models.list()] == list(PRESETS)
    with pytest.raises(openai.NotFoundError, match="gpt-x"):
        await client.chat.completions.create(model="gpt-x", messages=HELLO)


async def test_a_misspelt_script_is_refused(client):
    """An unknown key of a script is 400 and named, so that a fault which never happens cannot pass a test."""
    with pytest.raises(openai.BadRequestError, match="cut_afetr"):
        await stream(client, cut_afetr=3)


async def test_stamp(client):
    """With ``stamp`` each chunk says when it was written, on the machine's monotonic clock."""
    before_ns = time.monotonic_ns()
    stamps = [c.x_sim["sent_ns"] for c in await stream(client, tokens=3, stamp=True)]
    assert before_ns < stamps[0] <= stamps[-1] < time.monotonic_ns()


async def test_a_long_silence_is_never_cut_short(client):
    """The provider was held up before a silence: it is as long as its script says, and what follows is later."""
    asyncio.get_running_loop().call_later(0.2, time.sleep, 0.5)  # the loop of the simulator is this one
    chunks = await stream(client, tokens=2, ttft_ms=300, stalls=[[1, 1000]], stamp=True)
    first, second = [c.x_sim["sent_ns"] for c in chunks if c.choices and c.choices[0].delta.content]
    assert second - first >= 1_000_000_000


def test_plan_times():
    """First content at ttft_ms, the role half-way, then the interval, longer by the stall after its token."""
    options = SimulatorOptions(tokens=3, ttft_ms=100, interval_ms=20, stalls=((2, 300),))
    plan = [(step.kind, step.delay_ms) for step in steps(options, 0, report_usage=True)]
    assert plan[:4] == [("role", 50), ("text", 50), ("text", 20), ("text", 320)]
    assert plan[4:] == [("finish", 20), ("usage", 0), ("done", 0)]


def test_a_given_text_is_what_is_said():
    """A script's text is streamed letter by letter as it is, whatever the number of tokens, up to the request's limit."""
    text = " naïve\n\n```py\n  x = 1\n```  "
    for given, limit, said in (
        ({}, {}, text),
        ({"tokens": 1}, {}, text),
        ({}, {"max_tokens": 2}, " naïve\n\n```py"),
    ):
        options = options_of({"simulate": {"text": text} | given, **limit})
        played = steps(options, 0, report_usage=False)
        assert "".join(step.value for step in played if step.kind == "text") == said


@pytest.mark.parametrize("after", [0, 2, 3])
@pytest.mark.parametrize("how", ["cut", "reset", "hang", "error"])
def test_plan_ends_after_exactly_so_many_tokens(how, after):
    """Each untimely end stands right after its token, also before the first and after the last, and nothing follows."""
    options = options_of({"simulate": {"tokens": 3, f"{how}_after": after}})
    assert [step.kind for step in steps(options, 0, report_usage=True)] == ["role", *["text"] * after, how]


def test_options_precedence():
    """Preset, then script; scripts are an object or a list; a model without either is unknown."""
    assert options_of({"model": "sim-stall"}).stalls == ((20, 2300),)
    assert options_of({"model": "sim-stall", "simulate": {"tokens": 1}}) == SimulatorOptions(
        tokens=1, stalls=((20, 2300),)
    )
    assert options_of({"model": "x", "simulate": [{"tokens": 1}, {"tokens": 2}]}, nth_call=9).tokens == 2
    with pytest.raises(UnknownModel):
        options_of({"model": "x"})
    for bad in ("x", {"tokens": -1}, {"status": 200}, [3]):
        with pytest.raises(BadScript):
            options_of({"simulate": bad})


async def test_process():
    """The command starts a server of its own that says where it is, answers, and ends in order on SIGTERM."""
    process = await asyncio.create_subprocess_exec(*command(0, seed=5), stdout=asyncio.subprocess.PIPE)
    try:
        line = (await process.stdout.readline()).decode()
        async with openai.AsyncOpenAI(base_url=line.split()[-1], api_key="k", max_retries=0) as sdk:
            assert len(await stream(sdk, tokens=1)) == 4
    finally:
        process.terminate()
        assert await process.wait() == 0
