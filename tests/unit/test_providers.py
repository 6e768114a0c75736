"""Providers, routes and dialects: what is refused at start, and what a call in the wrong dialect is answered."""

import pytest
from pydantic import ValidationError

from edge.dialects import BadRequest
from edge.driving.opening import MODEL_CHARS_MAX
from schemas.settings import Provider, Route
from tests.support.edge import settings_of
from tests.support.running import edge_with

CHAT = Provider(base_url="http://127.0.0.1:1/v1")
MESSAGES = Provider(base_url="http://127.0.0.1:1", dialect="anthropic.messages")
PROVIDERS = {"chat": CHAT, "other": CHAT, "messages": MESSAGES}


def routed(**sections):
    """Settings with three providers of two dialects."""
    return settings_of(providers=PROVIDERS, **sections)


def service_with(**sections):
    """The service of an edge in memory with these routes."""
    return edge_with(providers=PROVIDERS, **sections).service


def test_a_dialect_that_nobody_speaks():
    """A misspelt dialect is refused with the ones that there are."""
    with pytest.raises(ValidationError, match=r"no dialect 'openai'.*anthropic\.messages"):
        Provider(base_url="http://127.0.0.1:1", dialect="openai")


def test_a_base_url_is_the_sdks():
    """Anthropic's SDK adds /v1 itself: a base_url that ends in it would call a path that is not there."""
    for path in ("/v1", "/v1/"):
        with pytest.raises(ValidationError, match="before /v1"):
            Provider(base_url=f"http://127.0.0.1:1{path}", dialect="anthropic.messages")


def test_a_model_is_routed_to_one_dialect():
    """Nothing is translated: a model's providers all speak the same."""
    with pytest.raises(ValidationError, match=r"several dialects: anthropic\.messages, openai\.chat"):
        routed(models={"m": [{"provider": "chat"}, {"provider": "messages"}]})
    routed(models={"m": [{"provider": "chat"}, {"provider": "other"}]})


def test_a_route_to_nowhere():
    """A route names a provider that there is."""
    for sections in ({"models": {"m": [{"provider": "x"}]}}, {"default_route": [{"provider": "x"}]}):
        with pytest.raises(ValidationError, match="'x', which is not in"):
            routed(**sections)


def test_the_default_route_serves_each_dialect_with_its_own():
    """A call takes those providers of the default route that speak its dialect, in their order."""
    default = [{"provider": name} for name in ("chat", "messages", "other")]
    service = service_with(default_route=default)
    assert [t.route.provider for t in service.opening.targets("m", "openai.chat")] == ["chat", "other"]
    assert [t.route.provider for t in service.opening.targets("m", "anthropic.messages")] == ["messages"]


@pytest.mark.parametrize(("chars", "served"), [(MODEL_CHARS_MAX, True), (MODEL_CHARS_MAX + 1, False)])
def test_a_models_name_has_a_bound(chars, served):
    """It stands on records that are not cut: where any model is routed, a client's megabytes would not fit one."""
    service = service_with(default_route=[{"provider": "chat"}])
    if served:
        assert service.opening.targets("m" * chars, "openai.chat")
        return
    with pytest.raises(BadRequest, match="more than 512 characters") as refused:
        service.opening.targets("m" * chars, "openai.chat")
    assert len(str(refused.value)) < 100


def test_a_call_in_another_dialect():
    """A model of one dialect asked for in another is the client's fault, and says which one it is."""
    service = service_with(models={"m": [{"provider": "messages"}]}, default_route=[])
    with pytest.raises(
        BadRequest, match=r"'m' is served in the dialect anthropic\.messages here, not in openai\.chat"
    ):
        service.opening.targets("m", "openai.chat")
    with pytest.raises(BadRequest, match="'n' is not served here"):
        service.opening.targets("n", "openai.chat")
    assert service.opening.targets("m", "anthropic.messages")[0].route == Route(provider="messages")
