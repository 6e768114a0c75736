"""One frozen object: where its values come from, what it refuses, and what it never shows."""

import re

import pytest
from pydantic import BaseModel, ValidationError

from schemas.settings import Section, Settings
from tests.support.sources import ROOT


@pytest.fixture(autouse=True)
def empty_place(monkeypatch, tmp_path):
    """No file and no variable but what the test brings."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_precedence(monkeypatch, empty_place):
    """An argument wins over the environment, the environment over the file, the file over the default."""
    (empty_place / "tokentrail.toml").write_text('[edge]\nid = "toml"\nhost = "toml"\nport = 1\n')
    monkeypatch.setenv("TOKENTRAIL_EDGE__ID", "env")
    monkeypatch.setenv("TOKENTRAIL_EDGE__HOST", "env")
    settings = Settings(edge={"id": "argument"})
    assert (settings.edge.id, settings.edge.host, settings.edge.port) == ("argument", "env", 1)
    assert settings.kafka == Settings.model_fields["kafka"].default


def test_tables_of_the_file(empty_place):
    """Providers and routes are read from the file as an operator writes them."""
    (empty_place / "tokentrail.toml").write_text(
        '[providers.local]\nbase_url = "http://127.0.0.1:1/v1"\n[[models.small]]\nprovider = "local"\nmodel = "s"\n'
    )
    assert Settings().models["small"][0].provider == "local"


RELATIONS = {
    "heartbeat": (
        {"stream": {"heartbeat_s": 15}, "pipeline": {"orphan_after_s": 60}},
        {"stream": {"heartbeat_s": 15.01}, "pipeline": {"orphan_after_s": 60}},
        "heartbeat_s",
    ),
    "delivery": ({"log": {"delivery_s": 29.99}}, {"log": {"delivery_s": 30}}, "delivery_s"),
    "stall": (
        {"stream": {"stall_timeout_s": 2, "stall_threshold_ms": 1999}},
        {"stream": {"stall_timeout_s": 2, "stall_threshold_ms": 2000}},
        "stall",
    ),
    "request": (
        {"timeout": {"request_s": 900, "decode_s": 600}, "stream": {"ttft_timeout_s": 300}},
        {"timeout": {"request_s": 900, "decode_s": 600}, "stream": {"ttft_timeout_s": 300.1}},
        "request_s",
    ),
    "idle": (
        {"stream": {"heartbeat_s": 59.9}, "pipeline": {"orphan_after_s": 240}},
        {"stream": {"heartbeat_s": 60}, "pipeline": {"orphan_after_s": 240}},
        "idle",
    ),
    "a route's own": (
        {
            "providers": {"one": {"base_url": "http://one"}},
            "models": {"m": [{"provider": "one", "ttft_timeout_s": 500, "decode_s": 400}]},
        },
        {
            "providers": {"one": {"base_url": "http://one"}},
            "models": {"m": [{"provider": "one", "ttft_timeout_s": 500, "decode_s": 400.1}]},
        },
        "of m at one",
    ),
    "the default route's own": (
        {
            "providers": {"one": {"base_url": "http://one"}},
            "default_route": [{"provider": "one", "stall_timeout_s": 2.1}],
        },
        {
            "providers": {"one": {"base_url": "http://one"}},
            "default_route": [{"provider": "one", "stall_timeout_s": 2}],
        },
        "of the default route at one",
    ),
    "hedge": (
        {"hedge": {"after_s": 299}, "stream": {"ttft_timeout_s": 300}},
        {"hedge": {"after_s": 300}, "stream": {"ttft_timeout_s": 300}},
        "hedge.after_s",
    ),
    "stall hedge": (
        {"hedge": {"stall_after_s": 119}, "stream": {"stall_timeout_s": 120}},
        {"hedge": {"stall_after_s": 120}, "stream": {"stall_timeout_s": 120}},
        "hedge.stall_after_s",
    ),
}


@pytest.mark.parametrize(("holds", "breaks", "named"), RELATIONS.values(), ids=RELATIONS)
def test_relations_at_their_edge(holds, breaks, named):
    """A relation between limits holds at its edge; one step further the process does not start, and says which."""
    Settings(**holds)
    with pytest.raises(ValidationError, match=rf"contradict.*{named}"):
        Settings(**breaks)


def test_relations_hold_at_a_twentieth():
    """Tests run lease, finder and grace at a twentieth: the asserted relations hold there too."""
    plain = Settings()
    Settings(
        stream={"heartbeat_s": plain.stream.heartbeat_s / 20},
        log={"delivery_s": plain.log.delivery_s / 20},
        pipeline={"orphan_after_s": plain.pipeline.orphan_after_s / 20},
        disconnect={"grace_s": plain.disconnect.grace_s / 20},
    )


def test_route_to_nobody():
    """A model that is routed to a provider which is not configured is refused at start."""
    with pytest.raises(ValidationError, match=r"'m' is routed to 'nobody'"):
        Settings(models={"m": [{"provider": "nobody"}]})


def test_default_route_to_nobody():
    """The route for all other models is held to the same."""
    with pytest.raises(ValidationError, match=r"default_route.*'nobody'"):
        Settings(default_route=[{"provider": "nobody"}])


@pytest.mark.parametrize(
    "text",
    ["bogus = 1\n", "[bogus]\nx = 1\n", "[edge]\nbogus = 1\n", '[providers.p]\nbase_url = "x"\nbogus = 1\n'],
)
def test_unknown_key_in_the_file(empty_place, text):
    """A key of the file that no setting has is an error, at every depth."""
    (empty_place / "tokentrail.toml").write_text(text)
    with pytest.raises(ValidationError, match=r"bogus\s*\n\s*Extra inputs"):
        Settings()


@pytest.mark.parametrize(
    "name", ["TOKENTRAIL_EDGE__BOGUS", "TOKENTRAIL_BOGUS", "TOKENTRAIL_BOGUS__ID", "tokentrail_bogus__id"]
)
def test_unknown_name_in_the_environment(monkeypatch, name):
    """A variable with our prefix that no setting has is an error that names it, section or field."""
    monkeypatch.setenv(name, "1")
    with pytest.raises(ValueError, match=r"(?i)bogus"):
        Settings()


def test_unknown_argument():
    """A misspelt argument is an error."""
    with pytest.raises(ValidationError, match="bogus"):
        Settings(edge={"bogus": 1})


@pytest.mark.parametrize("name", ["CACHE", "API_KEY", "TEST_CLICKHOUSE_URL"])
def test_names_of_others(monkeypatch, name):
    """What has our prefix but belongs to no process (downloads, the command line's key, the tests) is left alone."""
    monkeypatch.setenv(f"TOKENTRAIL_{name}", "x")
    Settings()


@pytest.mark.parametrize(
    "broken",
    [
        {"edge": {"port": 65536}},
        {"edge": {"port": -1}},
        {"retry": {"max_attempts": 0}},
        {"retry": {"max_attempts": 6}},
        {"disconnect": {"policy": "maybe"}},
        {"disconnect": {"policy": "grace\n"}},
        {"limit": {"frame_bytes": 0}},
        {"secrets": {"cursor": []}},
        {"keys": [{"id": "k", "tenant": "t", "sha256": "abc"}]},
    ],
    ids=str,
)
def test_ranges(broken):
    """A value out of its range is refused at start."""
    with pytest.raises(ValidationError):
        Settings(**broken)


@pytest.mark.parametrize(
    "value", [{"edge": {"port": 65535}}, {"edge": {"port": 0}}, {"retry": {"max_attempts": 5}}], ids=str
)
def test_ranges_at_their_edge(value):
    """The last value of a range is in it."""
    Settings(**value)


def test_secrets_are_masked():
    """No secret stands in the text, the repr, or the JSON of the settings."""
    settings = Settings(
        secrets={"cursor": ["s3cret-a"]},
        clickhouse={"password": "s3cret-b"},
        providers={"p": {"base_url": "http://127.0.0.1:1", "api_key": "s3cret-c"}},
    )
    assert settings.secrets.cursor[0].secret.get_secret_value() == "s3cret-a"
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert "s3cret" not in shown


def test_errors_do_not_echo_values(monkeypatch):
    """A misspelt secret is named in the error, its value is not."""
    monkeypatch.setenv("TOKENTRAIL_SECRETS__CURSR", "s3cret")
    with pytest.raises(ValidationError, match="cursr") as caught:
        Settings()
    assert "s3cret" not in str(caught.value)


def test_frozen():
    """Settings do not change while a process runs."""
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.edge.port = 1
    with pytest.raises(ValidationError, match="frozen"):
        settings.edge = None


def test_names_carry_their_unit():
    """Every number of a section says its unit, or is a plain count that reads as one."""
    units = ("_s", "_ms", "_us", "_bytes", "_days", "_rows", "_max", "_tokens", "share")
    counts = {
        "port",
        "partitions_per_edge",
        "max_attempts",
        "skew_s",
        "generations",
        "failures",
        "max_in_flight",
        "ack_ranges",
        "acks_noted",
        "histories",
        "histories_waiting",
        "resent_events",
    }
    sections = [field.annotation for field in Settings.model_fields.values()]
    for section in sections:
        if isinstance(section, type) and issubclass(section, Section) and issubclass(section, BaseModel):
            for name, field in section.model_fields.items():
                if field.annotation in (int, float):
                    assert name.endswith(units) or name in counts, f"{section.__name__}.{name}"


def test_the_deadlines_of_a_stop_are_those_that_the_docs_name():
    """Whoever runs a process waits for so long before it kills: 15 s for a worker, 35 s for an edge."""
    settings = Settings()
    text = (ROOT / "docs" / "limits.md").read_text()
    named = re.search(r"(\d+) s at most for a worker, (\d+) s for an edge", text)
    assert [float(s) for s in named.groups()] == [settings.worker_stop_s, settings.edge_stop_s]
