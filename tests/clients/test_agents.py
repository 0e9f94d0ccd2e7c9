"""Agent libraries, unmodified: three turns of a tool loop and a second question, token-exact by the cache.

The answers are played from a file, spelt letter by letter, so that encoding their texts again gives other ids.
"""

import asyncio
import json
import tempfile

import agents
import httpx2
import openai
import pytest
from conftest import TEMPLATES, Server
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

QUESTIONS = ["How warm is it in Oslo and in Bergen?", "And in Tromsø?"]
ASKS_FOR_IDS = {"return_token_ids": True}


def call(city):
    arguments = {"city": city, "days": 1.0}
    return "<tool_call>\n" + json.dumps({"name": "weather", "arguments": arguments}) + "\n</tool_call>"


ANSWERS = [call("Oslo"), call("Bergen"), "It is warm in both.", call("Tromsø"), "It is cold there."]


def weather(city: str, days: float = 1.0) -> str:
    """How warm it is.

    Args:
        city: Where.
        days: For how long.
    """
    return f"{days:g} day in {city}: {len(city)} degrees"


class Recording(httpx2.AsyncHTTPTransport):
    """Keeps what the server answers, whatever the library makes of it."""

    def __init__(self):
        super().__init__()
        self.answers = []

    async def handle_async_request(self, request):
        response = await super().handle_async_request(request)
        await response.aread()
        self.answers.append(json.loads(response.content))
        return response


@pytest.fixture(scope="module")
def script(server):
    """One answer a line, in ids of single letters."""
    def letters(text):
        return [id for letter in text for id in server.post("/tokenize", prompt=letter, add_special_tokens=False)["tokens"]]

    end = server.post("/tokenize", prompt="<|im_end|>", add_special_tokens=False)["tokens"]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(letters(answer) + end) + "\n" for answer in ANSWERS)
        file.flush()
        yield file.name


@pytest.fixture
def playing(script, request):
    """A server that plays the answers; one for each conversation, since it plays them in order."""
    flags = ["--engine", "scripted", "--script", script, "--chat-template", str(TEMPLATES / "hermes.jinja")]
    server = Server(*flags, "--enable-auto-tool-choice", "--tool-call-parser", "hermes", *getattr(request, "param", []))
    yield server
    server.stop()


def client_of(server, recording):
    http = httpx2.AsyncClient(transport=recording)
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=http)


async def by_openai(client):
    parameters = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "number"}}}
    tools = [{"type": "function", "function": {"name": "weather", "description": "How warm.", "parameters": parameters}}]
    messages = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        while True:
            answer = await client.chat.completions.create(
                model="smollm2", messages=messages, tools=tools, extra_body=ASKS_FOR_IDS
            )
            message = answer.choices[0].message
            # What a client with types of its own would keep.
            kept = {"role": "assistant", "content": message.content}
            if message.tool_calls:
                kept["tool_calls"] = [call.model_dump() for call in message.tool_calls]
            messages.append(kept)
            for tool_call in message.tool_calls or []:
                result = weather(**json.loads(tool_call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": tool_call.id, "content": result})
            if not message.tool_calls:
                break
    return message.content


async def by_openai_agents(client):
    agents.set_tracing_disabled(True)
    agent = agents.Agent(
        name="forecaster",
        instructions="Answer with the weather.",
        tools=[agents.function_tool(weather)],
        model=agents.OpenAIChatCompletionsModel(model="smollm2", openai_client=client),
        model_settings=agents.ModelSettings(extra_body=ASKS_FOR_IDS),
    )
    history = []
    for question in QUESTIONS:
        result = await agents.Runner.run(agent, [*history, {"role": "user", "content": question}])
        history = result.to_input_list()
    return result.final_output


async def by_pydantic_ai(client):
    model = OpenAIChatModel("smollm2", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, instructions="Answer with the weather.", tools=[weather], model_settings={"extra_body": ASKS_FOR_IDS})
    history = []
    for question in QUESTIONS:
        result = await agent.run(question, message_history=history)
        history = result.all_messages()
    return result.output


LIBRARIES = [by_openai, by_openai_agents, by_pydantic_ai]


def answers(server, library):
    recording = Recording()

    async def run():
        async with client_of(server, recording) as client:
            return await library(client)

    assert asyncio.run(run()) == ANSWERS[-1]
    assert len(recording.answers) == len(ANSWERS)
    return recording.answers


def turns(answers):
    """Prompt, everything known after the turn, and the verdict."""
    for answer in answers:
        choice, prompt = answer["choices"][0], answer["prompt_token_ids"]
        assert choice["finish_reason"] == ("tool_calls" if choice["message"].get("tool_calls") else "stop")
        yield prompt, prompt + choice["token_ids"], answer["token_continuity"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_prompt_starts_with_all_ids_before_it(playing, library):
    known = []
    for prompt, seen, verdict in turns(answers(playing, library)):
        assert prompt[: len(known)] == known, verdict
        assert verdict["outcome"] == ("exact" if known else "fresh")
        assert verdict["source"] == ("cache" if known else "none")
        known = seen


@pytest.mark.parametrize("playing", [["--continuity-cache-size", "0"]], indirect=True)
@pytest.mark.parametrize("library", LIBRARIES)
def test_without_the_cache_the_verdict_says_that_ids_were_lost(playing, library):
    known = []
    for prompt, seen, verdict in turns(answers(playing, library)):
        if known:
            assert prompt[: len(known)] != known
            assert (verdict["outcome"], verdict["reason"]) == ("retokenized", "cache_off")
        known = seen
