"""The seam between the edge and a protocol: what every dialect has, and that a fourth needs nothing else."""

import json

import pytest

from edge.capture import AttemptCapture
from edge.dialects import Captured, Dialect, bearer
from edge.dialects.json_events import JsonEvents, kind_of, tokens_of
from edge.dialects.openai_chat import OpenAiChat
from edge.dialects.spoken import dialect_of
from edge.reading.frames import Frames
from edge.sse import SseEvent, encode_frame
from schemas.events import Canonical, ChoiceFinish, Kind, PartType
from schemas.failures import DIALECTS, error_frame
from schemas.settings import Provider
from schemas.usage import FIELDS
from tests.support.running import OWNER, edge_with, ends_of
from tests.support.sources import ROOT
from tests.support.upstream import Script

ASKED = {"model": "m", "messages": [{"role": "user", "content": "x"}], "input": "x", "x_own": {"a": [1]}}


@pytest.fixture(params=DIALECTS)
def dialect(request):
    """Each dialect in turn."""
    return dialect_of(request.param)


def test_it_is_known_by_its_name(dialect):
    """A dialect goes by its name, which the usage reports are read by as well."""
    assert dialect.name in FIELDS
    assert dialect_of(dialect.name) is dialect


def test_its_own_end_mark(dialect):
    """The end mark that we write where a provider's is missing is an end mark to the dialect itself."""
    captured = dialect.new_state().capture(SseEvent(dialect.end_event, dialect.end_raw, None, None))
    assert [c.end for c in captured] == [True]


def test_our_errors_are_errors_to_it(dialect):
    """An edge in front of another edge understands the error event that the other wrote, with its message."""
    name, data = error_frame(dialect.name, "overloaded", "full", 4)
    (captured,) = dialect.new_state().capture(SseEvent(name, data, None, None))
    code, said = captured.failure
    assert (code, said.code, said.message) == ("overloaded", "overloaded", "full")


def test_our_heartbeats_are_nothing_to_it(dialect):
    """An edge in front of another edge takes the other's heartbeats for what they are: no events."""
    capture = AttemptCapture(dialect, 1 << 20, 1)
    frames = Frames(dialect.name, "g", "k", b"s")
    captured = capture.feed(frames.heartbeat("decode", 5) + encode_frame(None, "1-0.0-s", ": still here"))
    assert [c.kind for c in captured if c.kind is not None] == []


def test_what_is_asked_goes_on(dialect):
    """Every field of the client's goes on as it came, under the route's model, streamed; keys never come from the client."""
    asked = dialect.request_of(ASKED, {"authorization": "Bearer ours", "x-api-key": "ours", "cookie": "c"})
    body = dialect.upstream_body(asked, "other")
    assert {key: body[key] for key in ASKED} == ASKED | {"model": "other"}
    assert body["stream"] is True
    sent = dialect.upstream_headers(asked, "theirs")
    assert "theirs" in "".join(sent.values())
    assert not {"ours", "Bearer ours", "c"} & set(sent.values())
    assert dialect.upstream_path("other").startswith("/")


def test_numbering_changes_no_more_than_a_number(dialect):
    """An event's data on the log is the provider's, but for the one field that is a number of ours."""
    raw = '{"type": "x" , "sequence_number": 3,"a":"\\u00fc"}'
    assert dialect.at_seq(raw, 41) in (raw, raw.replace("3", "41", 1))


def test_the_recipe_names_every_function():
    """The recipe for one more dialect lists what the seam really has."""
    recipe = (ROOT / "docs" / "dialects.md").read_text()
    functions = [
        name for name, value in vars(Dialect).items() if callable(value) and not name.startswith("_")
    ]
    fields = [name for name in Dialect.__annotations__ if not name.startswith("_")]
    assert [name for name in functions + fields if f"`{name}" not in recipe] == []


class TinyState(JsonEvents):
    """The stream of a protocol that nobody speaks: says, then a bye with a reason and the totals."""

    def _join(self, value):
        if isinstance(value, dict) and isinstance(value.get("say"), str):
            value["say"] = self._halves.whole((), value["say"])

    def _understood(self, value, raw, name):
        if "bye" in value:
            self.finishes[0] = ChoiceFinish(finish_reason="stop", raw_finish_reason=value["bye"])
            self.usage_reports.append(value["total"])
            return Captured(Kind.MESSAGE_END, raw, name, end=True)
        text = value["say"]
        parts = [Canonical(type=PartType.TEXT, text=text, tokens_estimate=tokens_of(text))]
        return Captured(kind_of(parts), raw, name, tuple(parts))


class Tiny(OpenAiChat):
    """Asked like Chat Completions, answered in a protocol of its own."""

    name = "test.tiny"
    end_raw = '{"bye":"?"}'

    def upstream_path(self, model):
        """A protocol whose paths name the model."""
        return f"/models/{model}:stream"

    def upstream_headers(self, request, api_key):
        """As most want it."""
        return request.headers | bearer(api_key)

    def new_state(self):
        """See Dialect."""
        return TinyState()

    def assemble(self, events):
        """See Dialect."""
        said = [json.loads(event.raw) for event in events if event.kind is Kind.DELTA]
        return {"said": "".join(value["say"] for value in said)}


async def test_a_fourth_dialect_needs_nothing_else(monkeypatch):
    """One file and two lines of tables make a protocol that the whole edge runs: captured, counted, ended, assembled."""
    monkeypatch.setitem(FIELDS, Tiny.name, FIELDS["openai.chat"])
    provider = Provider.model_construct(dialect=Tiny.name, base_url="http://127.0.0.1:1", api_key=None)
    script = Script(
        *(encode_frame(None, None, data) for data in (
            '{"say":"Hello, "}', ": alive", '{"say":"w\\ud83c"}', '{"say":"\\udf0d"}',
            '{"bye":"done","total":{"prompt_tokens":3,"completion_tokens":4}}',
        ))
    )  # fmt: skip
    async with edge_with(script) as edge:
        edge.settings.providers["one"] = provider
        tiny = Tiny()
        entry = await edge.service.begin(OWNER, tiny, tiny.request_of(ASKED), {})
        records = await edge.over(entry)
    numbered = [event for event in records if event.seq is not None]
    assert [event.raw for event in numbered[1:]][:2] == ['{"say":"Hello, "}', '{"say":"w\\ud83c"}']
    assert [part.text for event in numbered for part in event.canonical] == ["Hello, ", "w", "🌍"]
    end = numbered[-1].message_end
    assert (end.finish_reason, end.raw_finish_reason, end.usage.output) == ("stop", "done", 4)
    assert ends_of(records)[0].usage.input == 3
    assert tiny.assemble(numbered) == {"said": "Hello, w\ud83c\udf0d"}
