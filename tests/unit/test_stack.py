"""What a stack consists of: embedded or external, ports, environment, and what is shown of it."""

import io
import json
import os

import pytest
from rich.console import Console

from compose.config import load_settings, write_development_config
from compose.embedded import model
from compose.embedded.kafka.process import start_mark
from compose.embedded.simulator import PRESETS
from compose.kafka.admin import Group
from compose.logs import LogPrinter, Terminal
from compose.readiness import Joined
from compose.run import AlreadyRuns, _decide, running
from compose.stack import SIMULATOR_MODEL, UpOptions, base_services, child_environment, worker_services
from compose.state import Folder, ServerInfo, StackState
from schemas.failures import DIALECTS


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path / "stack")
    made.path.mkdir()
    return made


def decided(folder, environ=None, cwd=None):
    options = UpOptions(folder=folder, environ=environ or {}, cwd=cwd, edge_port=0)
    return options, _decide(options, lambda *_: None)


def test_all_is_embedded_by_default(folder):
    """Without any configuration ClickHouse and the simulator are run, and a configuration is written."""
    options, base = decided(folder)
    assert (base.runs_kafka, base.runs_clickhouse, base.runs_simulator) == (True, True, True)
    assert [s.name for s in base_services(options, base, None)] == ["clickhouse", "simulator"]
    assert folder.config.exists()
    assert set(folder.read_keys()) == {"acme", "globex"}


def test_external_services_are_not_started(folder, monkeypatch):
    """Kafka and ClickHouse of the environment replace the embedded ones, and the children are told theirs."""
    monkeypatch.setenv("TOKENTRAIL_KAFKA__BOOTSTRAP_SERVERS", "broker:9092")
    monkeypatch.setenv("TOKENTRAIL_CLICKHOUSE__URL", "https://warehouse:8443")
    options, base = decided(folder)
    assert (base.runs_kafka, base.runs_clickhouse) == (False, False)
    assert [s.name for s in base_services(options, base, None)] == ["simulator"]
    told = child_environment(options, base, base.settings.kafka.bootstrap_servers)
    assert told["TOKENTRAIL_KAFKA__BOOTSTRAP_SERVERS"] == "broker:9092"
    assert told["TOKENTRAIL_CLICKHOUSE__URL"] == "https://warehouse:8443"


def test_the_working_directory_comes_before_the_folder(folder, tmp_path):
    """A tokentrail.toml where `up` is called is in force; without a simulator in it none is run."""
    (tmp_path / "tokentrail.toml").write_text('[providers.mine]\nbase_url = "http://127.0.0.1:1/v1"\n')
    options, base = decided(folder, cwd=tmp_path)
    assert base.config == tmp_path / "tokentrail.toml"
    assert not base.runs_simulator
    assert not folder.config.exists()
    assert worker_services(options, base, "b:1")[0].cwd == tmp_path


def test_a_restarted_edge_has_another_id_on_the_same_port(folder):
    """Each start of an edge gets an id of its own, so that it never takes its predecessor's records for its own."""
    options, base = decided(folder)
    edge = next(s for s in worker_services(options, base, "b:1") if s.name == "edge-1")
    first, second = edge.env(1), edge.env(2)
    assert first["TOKENTRAIL_EDGE__ID"] != second["TOKENTRAIL_EDGE__ID"]
    assert first["TOKENTRAIL_EDGE__PORT"] == second["TOKENTRAIL_EDGE__PORT"] == str(base.ports["edge-1"])


def told_to_an_edge(folder, environ, monkeypatch, cwd=None):
    """Settings as an edge of this stack reads them, and what the stack stands on."""
    options, base = decided(folder, environ, cwd)
    edge = next(s for s in worker_services(options, base, "b:1") if s.name == "edge-1")
    for name, value in edge.env(1).items():
        monkeypatch.setenv(name, value)
    return load_settings(base.config), base


def test_what_the_children_are_told_is_valid(folder, monkeypatch):
    """The environment of an edge makes valid settings, with prices, and with the simulator where it really listens."""
    settings, base = told_to_an_edge(folder, {}, monkeypatch)
    url = f"http://127.0.0.1:{base.ports['simulator']}"
    assert {name: provider.base_url for name, provider in settings.providers.items()} == {
        "simulator": f"{url}/v1",
        "simulator_responses": f"{url}/v1",
        "simulator_messages": url,
    }
    assert settings.price_files
    assert not settings.default_route


def test_the_simulator_serves_every_dialect(folder):
    """Without any configuration each dialect has each of the simulator's models, under a name of its own."""
    settings = decided(folder)[1].settings
    served = {
        (settings.providers[route.provider].dialect, route.model) for (route,) in settings.models.values()
    }
    assert served == {(dialect, model) for dialect in DIALECTS for model in PRESETS}
    assert SIMULATOR_MODEL in settings.models


@pytest.mark.parametrize(
    ("keys", "served"),
    [
        ((), []),
        (("OPENAI_API_KEY",), ["openai.chat", "openai.responses"]),
        (("ANTHROPIC_API_KEY",), ["anthropic.messages"]),
        (("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), ["openai.chat", "openai.responses", "anthropic.messages"]),
    ],
)
def test_real_providers_are_there_with_their_keys(folder, monkeypatch, keys, served):
    """A key in the environment is enough for its provider to serve, in its dialects, what no other route names."""
    settings, _ = told_to_an_edge(folder, dict.fromkeys(keys, "sk-x"), monkeypatch)
    routed = [settings.providers[route.provider] for route in settings.default_route]
    assert [provider.dialect for provider in routed] == served
    assert all(provider.api_key.get_secret_value() == "sk-x" for provider in routed)


def test_a_provider_of_ones_own_is_left_alone(folder, tmp_path, monkeypatch):
    """A configuration that names a provider, or a default route, is not overruled by a key in the environment."""
    own = 'dialect = "anthropic.messages"\nbase_url = "http://127.0.0.1:1"\n'
    (tmp_path / "tokentrail.toml").write_text(f"[providers.anthropic]\n{own}[providers.simulator]\n{own}")
    environ = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "sk-x")
    settings, base = told_to_an_edge(folder, environ, monkeypatch, tmp_path)
    assert settings.providers["anthropic"].base_url == "http://127.0.0.1:1"
    assert [route.provider for route in settings.default_route] == ["openai", "openai_responses"]
    assert settings.providers["simulator"].base_url == f"http://127.0.0.1:{base.ports['simulator']}"
    (tmp_path / "tokentrail.toml").write_text(
        f'default_route = [{{provider = "mine"}}]\n[providers.mine]\n{own}'
    )
    options, base = decided(folder, environ, tmp_path)
    assert not [name for name in child_environment(options, base, "b:1") if "OPENAI__" in name]


def test_the_tiers_stop_edges_first_and_the_log_last(folder):
    """Nothing that publishes outlives what it publishes to: edges, pipeline, sinks, then the base."""
    options, base = decided(folder)
    services = [*base_services(options, base, None), *worker_services(options, base, "b:1")]
    order = [s.name for s in sorted(services, key=lambda s: -s.tier)]
    assert order == ["edge-1", "edge-2", "pipeline", "sinks", "clickhouse", "simulator"]


def test_without_the_extra_the_model_says_how_to_get_it(tmp_path, monkeypatch):
    """Asking for the real model without its packages is an error that names the extra."""
    monkeypatch.setattr(model.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(model.ModelUnavailable, match=r"tokentrail\[model\]"):
        model.weights(tmp_path)


def test_an_existing_configuration_is_left_alone(folder):
    """A second start keeps configuration and keys as they are."""
    keys = write_development_config(folder, "http://127.0.0.1:1")
    before = folder.config.read_text()
    decided(folder)
    assert folder.config.read_text() == before
    assert folder.read_keys() == keys


async def test_the_log_shows_whole_lines_of_each_process(tmp_path):
    """New lines are shown once, with their process's name; old ones and half ones are not."""
    screen = Console(file=io.StringIO(), width=200)
    (tmp_path / "edge-1.log").write_text("old\n")
    async with LogPrinter(tmp_path, screen) as printer:
        with (tmp_path / "edge-1.log").open("a") as log:
            log.write("one\nhal")
        printer._print_new()
        with (tmp_path / "edge-1.log").open("a") as log:
            log.write("f\n")
        printer._print_new()
        printer.say("up", "ready")
    lines = [line.split("│ ")[1] for line in screen.file.getvalue().splitlines()]
    assert lines == ["one", "half", "ready"]


async def test_the_terminal_shows_words_where_the_file_has_json(tmp_path):
    """An event and the fields that say something, without braces and zeros; the same figures again are not news."""
    screen = Console(file=io.StringIO(), width=200)
    fold = {"lag": 0, "records": 80, "event": "fold", "level": "info", "timestamp": "2026-11-30T03:05:33Z"}
    bug = {
        "event": "failed",
        "level": "error",
        "exception": [{"exc_type": "KeyError", "exc_value": "'x'", "frames": []}],
    }
    lines = [json.dumps(fold), json.dumps(fold | {"timestamp": "later"}), "not json", json.dumps(fold | {"records": 81}),
             json.dumps(bug), '{"no": "event"}']  # fmt: skip
    async with LogPrinter(tmp_path, screen) as printer:
        (tmp_path / "pipeline.log").write_text("\n".join(lines) + "\n")
        printer._print_new()
    shown = [line.split("│ ")[1] for line in screen.file.getvalue().splitlines()]
    assert shown == [
        "fold  records=80", "not json", "fold  records=81", "failed  exception=KeyError: 'x'", '{"no": "event"}',
    ]  # fmt: skip


def test_a_group_is_joined_by_somebody_new():
    """What a killed process left in its group is not the readiness of the one that is started in its place."""
    first, last = frozenset({"first"}), frozenset({"last"})
    again = Joined("nowhere", ["one"], {"one": first})
    assert not again.judge({"one": Group("Stable", first)})
    assert again.judge({"one": Group("Stable", last)})
    joined = Joined("nowhere", ["one", "two"])
    old, new = frozenset({"old"}), frozenset({"new"})
    assert not joined.judge({"one": Group("Stable", old), "two": Group("Empty", frozenset())})
    assert joined.judge({"one": Group("Stable", old), "two": Group("Stable", old)})
    assert not joined.judge({"one": Group("Stable", old), "two": Group("Stable", old)})
    assert not joined.judge({"one": Group("Stable", new), "two": Group("PreparingRebalance", old | new)})
    assert joined.judge({"one": Group("Stable", new), "two": Group("Stable", new)})


async def test_a_terminal_that_went_away_disturbs_nobody(tmp_path):
    """When the terminal is gone, saying something is no error for the supervisor."""

    class Gone(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    printer = LogPrinter(tmp_path, Terminal(file=Gone()))
    printer.say("up", "still here")
    printer.say("up", "still here")


@pytest.mark.parametrize("dead", [False, True])
async def test_a_second_start_is_told_of_a_living_supervisor_only(folder, dead):
    """While another one takes over, the state of the supervisor that died is not what runs."""
    nowhere = ServerInfo(address="", kind="embedded")
    folder.write_state(
        StackState(
            supervisor_pid=os.getpid(), supervisor_mark="another" if dead else start_mark(os.getpid()) or "",
            started_us=0, config="", kafka=nowhere, clickhouse=nowhere, ready=True,
        )
    )  # fmt: skip
    options = UpOptions(folder=folder, environ={}, cwd=None, edge_port=0)
    with folder.lock() as ours:
        assert ours
        with pytest.raises(AlreadyRuns) as told:
            await running(options, lambda *_: None).__aenter__()
    assert (told.value.state is None) == dead
