"""Settings of a provider on its model, `Settings.extra` by provider, and presets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests._wires import ADAPTERS, KEY, WIRES, wire
from tests.wire import Wire, WireServer

from hookline import Agent, Conversation, Settings, tool
from hookline.errors import UsageError
from hookline.hooks import fallback
from hookline.models import resolve_model
from hookline.providers.anthropic import AnthropicModel, AnthropicSettings
from hookline.providers.google import GoogleModel, GoogleSettings
from hookline.providers.openai import OpenAIModel, OpenAISettings
from hookline.providers.openai_chat import OpenAIChatModel, OpenAIChatSettings
from hookline.providers.presets import OWN, PRESETS, preset
from hookline.testing import Turn, call

each_wire = pytest.mark.parametrize("kind", WIRES)


@tool
async def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


@tool
async def clock() -> str:
    """The time."""
    return "noon"


SETTINGS: dict[str, Any] = {
    "openai": OpenAISettings,
    "openai-chat": OpenAIChatSettings,
    "anthropic": AnthropicSettings,
    "google": GoogleSettings,
}


def temperature_in(body: Any) -> Any:
    return body.get("generationConfig", body).get("temperature")


@each_wire
async def test_the_models_settings_are_the_weakest_and_fields_are_filled_one_by_one(
    kind: Any,
) -> None:
    own = SETTINGS[kind](temperature=0.1, top_p=0.2, max_tokens=7)
    async with wire(kind, "Hi.", "Hi.", settings=own) as (model, server):
        await Agent(model).chat("Hi.")
        await Agent(model, settings=Settings(temperature=0.5)).chat("Hi.")
        first, second = (each.json for each in server.requests)
        assert (temperature_in(first), temperature_in(second)) == (0.1, 0.5)
        assert "0.2" in json.dumps(second)


async def asked(kind: Any, settings: Settings, **chat: Any) -> tuple[Any, dict[str, str]]:
    """The body and the headers of the request that a model with these settings makes."""
    async with wire(kind, "Hi.", settings=settings) as (model, server):
        await Agent(model, tools=[weather, clock], system="Be brief.").chat("Hi.", **chat)
        return server.requests[0].json, server.requests[0].headers


async def test_every_setting_of_responses_is_a_field_of_its_request() -> None:
    body, headers = await asked(
        "openai",
        OpenAISettings(
            reasoning_effort="high",
            reasoning_summary="auto",
            verbosity="low",
            service_tier="flex",
            cache_key="shop",
            cache_retention="24h",
            top_logprobs=2,
            parallel_tool_calls=False,
            max_tool_calls=3,
            truncation="auto",
            metadata={"a": "b"},
            safety_identifier="u1",
            headers={"x-mine": "1"},
            body={"new": 1},
        ),
    )
    wanted = {
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"verbosity": "low"},
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "service_tier": "flex",
        "prompt_cache_key": "shop",
        "prompt_cache_retention": "24h",
        "top_logprobs": 2,
        "parallel_tool_calls": False,
        "max_tool_calls": 3,
        "truncation": "auto",
        "metadata": {"a": "b"},
        "safety_identifier": "u1",
        "new": 1,
    }
    assert {name: body[name] for name in wanted} == wanted
    assert headers["x-mine"] == "1"


async def test_every_setting_of_chat_completions_is_a_field_of_its_request() -> None:
    body, headers = await asked(
        "openai-chat",
        OpenAIChatSettings(
            reasoning_effort="low",
            verbosity="high",
            service_tier="flex",
            cache_key="shop",
            cache_retention="24h",
            top_logprobs=2,
            frequency_penalty=0.1,
            presence_penalty=0.2,
            logit_bias={"1": 2},
            parallel_tool_calls=False,
            modalities=("text", "audio"),
            audio={"voice": "alloy", "format": "pcm16"},
            metadata={"a": "b"},
            safety_identifier="u1",
            headers={"x-mine": "1"},
            body={"new": 1},
        ),
    )
    wanted = {
        "reasoning_effort": "low",
        "verbosity": "high",
        "service_tier": "flex",
        "prompt_cache_key": "shop",
        "prompt_cache_retention": "24h",
        "logprobs": True,
        "top_logprobs": 2,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "logit_bias": {"1": 2},
        "parallel_tool_calls": False,
        "modalities": ["text", "audio"],
        "audio": {"voice": "alloy", "format": "pcm16"},
        "metadata": {"a": "b"},
        "safety_identifier": "u1",
        "new": 1,
    }
    assert {name: body[name] for name in wanted} == wanted
    assert headers["x-mine"] == "1"


async def test_every_setting_of_anthropic_is_a_field_or_a_header_of_its_request() -> None:
    body, headers = await asked(
        "anthropic",
        AnthropicSettings(
            thinking=2048,
            thinking_display="summarized",
            effort="high",
            beta=("one", "two"),
            top_k=5,
            service_tier="auto",
            speed="fast",
            parallel_tool_calls=False,
            container="box",
            user_id="u1",
            headers={"x-mine": "1"},
            body={"new": 1},
        ),
    )
    wanted = {
        "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "summarized"},
        "output_config": {"effort": "high"},
        "max_tokens": 16_384 + 2048,
        "top_k": 5,
        "service_tier": "auto",
        "speed": "fast",
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "container": "box",
        "metadata": {"user_id": "u1"},
        "new": 1,
    }
    assert {name: body[name] for name in wanted} == wanted
    assert (headers["anthropic-beta"], headers["x-mine"]) == ("one,two", "1")


@pytest.mark.parametrize("thinking", ["adaptive", "off"])
async def test_anthropic_thinks_as_it_likes_or_not_at_all(thinking: Any) -> None:
    body, _ = await asked("anthropic", AnthropicSettings(thinking=thinking))
    assert body["thinking"] == {"type": {"adaptive": "adaptive", "off": "disabled"}[thinking]}


async def test_every_setting_of_google_is_a_field_of_its_request() -> None:
    body, headers = await asked(
        "google",
        GoogleSettings(
            thinking_budget=100,
            include_thoughts=True,
            cached_content="cachedContents/1",
            top_k=5,
            frequency_penalty=0.1,
            presence_penalty=0.2,
            logprobs=2,
            safety={"HARM_CATEGORY_HARASSMENT": "BLOCK_NONE"},
            modalities=("TEXT", "IMAGE"),
            headers={"x-mine": "1"},
        ),
    )
    config = body["generationConfig"]
    assert config["thinkingConfig"] == {"thinking_budget": 100, "include_thoughts": True}
    assert (config["topK"], config["frequencyPenalty"], config["presencePenalty"]) == (5, 0.1, 0.2)
    assert (config["logprobs"], config["responseLogprobs"]) == (2, True)
    assert config["responseModalities"] == ["TEXT", "IMAGE"]
    assert body["cachedContent"] == "cachedContents/1"
    harassment = {"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}
    assert body["safetySettings"] == [harassment]
    assert headers["x-mine"] == "1"


async def test_anthropic_is_told_where_its_cache_may_end() -> None:
    """At the tools, the system text, and the ends of the last two user turns."""
    talk = Conversation()
    async with wire(
        "anthropic", [call("clock")], "Noon.", "Bye.", settings=AnthropicSettings(cache="1h")
    ) as (model, server):
        agent = Agent(model, tools=[weather, clock], system="Be brief.")
        await agent.chat("The time?", conversation=talk)
        await agent.chat("Thanks.", conversation=talk)
    mark = {"type": "ephemeral", "ttl": "1h"}
    for request in server.requests:
        body = request.json
        assert [tool.get("cache_control") for tool in body["tools"]] == [None, mark]
        assert body["system"][0]["cache_control"] == mark
        turns = [turn for turn in body["messages"] if turn["role"] == "user"]
        marked = [turn["content"][-1].get("cache_control") == mark for turn in turns]
        assert marked == ([True] * len(turns) if len(turns) <= 2 else [False, True, True])
        assert json.dumps(body).count("cache_control") <= 4


async def test_a_fallback_to_another_provider_sends_it_none_of_the_first_ones_fields() -> None:
    extra = {"openai": {"top_logprobs": 3}, "anthropic": {"top_k": 4}}
    async with (
        WireServer("openai", Wire(status=503)) as first,
        WireServer("anthropic", "Hi.") as second,
    ):
        model = OpenAIModel(
            "gpt-x",
            base_url=first.url,
            api_key=KEY,
            settings=OpenAISettings(reasoning_effort="high", cache_key="shop", verbosity="low"),
        )
        other = AnthropicModel(
            "claude-x", base_url=second.url, api_key=KEY, settings=AnthropicSettings(cache=True)
        )
        agent = Agent(model, hooks=[fallback(other)], settings=Settings(extra=extra, temperature=1))
        assert (await agent.chat("Hi.")).text == "Hi."
    asked_first, asked_second = first.requests[0].json, second.requests[0].json
    assert asked_first["reasoning"] == {"effort": "high"}
    assert (asked_first["top_logprobs"], "top_k" in asked_first) == (3, False)
    assert set(asked_second) == {
        *("model", "stream", "max_tokens", "messages", "temperature", "top_k"),
    }


@each_wire
@pytest.mark.parametrize(
    "extra", [{"reasoning": {"effort": "high"}}, {"seed": 1}], ids=["object", "number"]
)
async def test_an_extra_that_names_no_provider_is_refused(kind: Any, extra: Any) -> None:
    async with wire(kind) as (model, server):
        with pytest.raises(UsageError, match="must be grouped by provider"):
            await Agent(model, settings=Settings(extra=extra)).chat("Hi.")
        assert server.requests == []


@each_wire
async def test_settings_of_a_provider_belong_to_its_model_and_not_to_an_agent(kind: Any) -> None:
    async with wire(kind) as (model, server):
        with pytest.raises(UsageError, match="must be passed to the model"):
            await Agent(model, settings=AnthropicSettings(top_k=1)).chat("Hi.")
        assert server.requests == []


# ── presets ─────────────────────────────────────────────────────────────────────────────────

VARIABLES = [
    name
    for row in {**OWN, **PRESETS}.values()
    for name in (*row.keys, row.address)
    if name is not None
]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "OPENAI_API_VERSION", "AZURE_OPENAI_AD_TOKEN", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


async def body_of(prefix: str, *turns: Any, settings: Settings | None = None) -> list[Any]:
    """What a preset sends to a server in its place."""
    async with WireServer("openai-chat", *turns) as server:
        model = preset(prefix, "some/model:tag", base_url=server.url, api_key=KEY)
        agent = Agent(model, tools=[weather], settings=settings or Settings())
        await agent.chat("Hi.")
        assert server.requests[0].path == "/v1/chat/completions"
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        return [request.json for request in server.requests]


CHATS = [prefix for prefix in PRESETS if prefix != "bedrock"]


@pytest.mark.parametrize("prefix", CHATS)
async def test_a_preset_speaks_chat_completions(prefix: str) -> None:
    settings = Settings(extra={prefix: {"mine": 1}, "openai-chat": {"foreign": 1}})
    [body] = await body_of(prefix, "Hi.", settings=settings)
    assert (body["model"], body["mine"], "foreign" in body) == ("some/model:tag", 1, False)


async def test_mistral_has_its_own_words_and_ids() -> None:
    settings = Settings(seed=7, tool_choice="required", max_tokens=5)
    turns = (Turn(call("weather", city="Oslo")), "Sunny.")
    first, second = await body_of("mistral", *turns, settings=settings)
    assert (first["random_seed"], first["tool_choice"], first["max_tokens"]) == (7, "any", 5)
    assert "stream_options" not in first
    [asked_for] = second["messages"][1]["tool_calls"]
    assert len(asked_for["id"]) == 9
    assert asked_for["id"].isalnum()
    assert second["messages"][2]["tool_call_id"] == asked_for["id"]


@pytest.mark.parametrize("prefix", ["groq", "azure"])
async def test_some_servers_have_the_new_name_of_the_limit(prefix: str) -> None:
    [body] = await body_of(prefix, "Hi.", settings=Settings(max_tokens=5))
    assert body["max_completion_tokens"] == 5


@pytest.mark.parametrize("prefix", CHATS)
async def test_a_preset_asks_for_a_form_as_its_server_takes_it(prefix: str) -> None:
    async with WireServer("openai-chat", '{"value": 3}') as server:
        model = preset(prefix, "some-model", base_url=server.url, api_key=KEY)
        assert (await Agent(model, output=int).chat("How many?")).output == 3
        body = server.requests[0].json
    in_words = "JSON schema" in str(body["messages"])
    assert ("response_format" in body, in_words) == (prefix != "deepseek", prefix == "deepseek")


async def test_a_server_without_a_mode_for_schemas_can_be_named() -> None:
    async with WireServer("openai-chat", '{"value": 3}') as server:
        model = OpenAIChatModel("m", base_url=server.url, api_key=KEY, takes_schema=False)
        assert (await Agent(model, output=int).chat("How many?")).output == 3
        body = server.requests[0].json
    assert "response_format" not in body
    assert body["messages"][0]["role"] == "system"


@pytest.mark.parametrize("prefix", PRESETS)
async def test_a_preset_without_key_names_its_variables(prefix: str) -> None:
    row = PRESETS[prefix]
    if row.keyless:
        return
    with pytest.raises(UsageError, match="set ") as caught:
        await Agent(f"{prefix}:model").chat("Hi.")
    assert any(name in str(caught.value) for name in (*row.keys, row.address) if name)
    assert prefix in str(caught.value)
    assert "for openai:" not in str(caught.value)
    assert "OPENAI_API_KEY" not in str(caught.value).replace("AZURE_OPENAI_API_KEY", "")


async def test_a_named_provider_without_key_is_named() -> None:
    with pytest.raises(UsageError, match="no API key for acme: set OPENAI_API_KEY"):
        await Agent(OpenAIChatModel("m", provider="acme")).chat("Hi.")


@pytest.mark.parametrize("prefix", PRESETS)
@pytest.mark.parametrize("option", ["api_key", "base_url"])
def test_a_preset_refuses_an_option_that_its_client_would_silence(prefix: str, option: str) -> None:
    with pytest.raises(UsageError, match=f"leave out {option}=, or leave out client="):
        preset(prefix, "m", client=lambda: None, **{option: "https://example.org"})


async def test_bedrock_takes_the_key_and_the_address_that_its_preset_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with WireServer("anthropic", "Hi.", "Hi.") as server:
        model = preset("bedrock", "m", api_key=KEY, base_url=server.url)
        assert (await Agent(model).chat("Hi.")).text == "Hi."
        monkeypatch.setenv("AWS_REGION", "eu-north-1")
        monkeypatch.setenv("ANTHROPIC_BEDROCK_MANTLE_BASE_URL", server.url)
        options = {"client": None, "base_url": None}
        assert (await Agent(preset("bedrock", "m", api_key=KEY, **options)).chat("Hi.")).text
        for request in server.requests:
            assert KEY in str(request.headers)


@pytest.mark.parametrize("prefix", PRESETS)
def test_a_presets_name_makes_its_model(prefix: str) -> None:
    model: Any = resolve_model(f"{prefix}:some/model:tag")
    assert model.name == "some/model:tag"
    assert type(model) is (AnthropicModel if prefix == "bedrock" else OpenAIChatModel)
    row = PRESETS[prefix]
    if row.url is not None:
        assert model.server_address in row.url
    assert model.provider == ("anthropic" if prefix == "bedrock" else prefix)


async def test_ollama_asks_for_no_key_and_has_its_address_in_a_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with WireServer("openai-chat", "Hi.") as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", server.url)
        assert (await Agent("ollama:qwen3").chat("Hi.")).text == "Hi."


async def test_azure_is_asked_by_its_endpoint_and_a_version_takes_its_own_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with WireServer("openai-chat", "Hi.", "Hi.") as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url.removesuffix("/v1"))
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
        await Agent("azure:mine").chat("Hi.")
        monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
        await Agent("azure:mine").chat("Hi.")
        first, second = (request.path for request in server.requests)
    assert first == "/openai/v1/chat/completions"
    assert second.startswith("/openai/deployments/mine/chat/completions")


@pytest.mark.parametrize("version", ["", "2024-10-21"])
async def test_azure_takes_the_key_that_its_preset_was_given(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with WireServer("openai-chat", "Hi.", "Hi.") as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url.removesuffix("/v1"))
        monkeypatch.setenv("OPENAI_API_VERSION", version)
        await Agent(preset("azure", "mine", api_key="key-of-the-call")).chat("Hi.")
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "key-of-the-environment")
        options = {"base_url": None, "client": None}
        await Agent(preset("azure", "mine", api_key="key-of-the-call", **options)).chat("Hi.")
        for request in server.requests:
            assert "key-of-the-call" in (
                request.headers.get("api-key"),
                request.headers.get("authorization", "").removeprefix("Bearer "),
            )
        assert server.requests[0].path == server.requests[1].path


async def test_azures_client_without_its_version_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://shop.example")
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "token")
    with pytest.raises(UsageError, match="OPENAI_API_VERSION"):
        await Agent("azure:mine").chat("Hi.")


def test_a_preset_that_there_is_not_names_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="ollama"):
        preset("nobody", "x")


def test_the_settings_of_every_adapter_are_settings_too() -> None:
    for kind, settings in SETTINGS.items():
        assert issubclass(settings, Settings)
        assert ADAPTERS[kind]("m", api_key=KEY, settings=settings(seed=1)).settings.seed == 1
    assert GoogleModel("m", api_key=KEY).settings == GoogleSettings()
