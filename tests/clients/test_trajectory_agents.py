"""Agents with tools, unmodified, in three dialects, streamed and not: what they did becomes the tree that a recorder at the
client saw, id for id.

Each calls tools, is asked two different things after its first answer, and goes on from a summary at last. The answers are
played from a file, spelt letter by letter, so that encoding their texts again gives other ids.
"""

import asyncio
import json

import agents
import anthropic
import httpx2
import openai
import pytest

from conftest import TEMPLATES, Server
from lines import events_of
from test_agents import call, weather
from test_trajectories import Recorder, captured, found

SUMMARY = "Summary: it was about the weather in Norway. Go on."
FIRST, BRANCHES, REST = "How warm is it in Oslo and in Bergen?", ["And in Tromsø?", "And in winter?"], "And at sea?"
ANSWERS = [call("Oslo"), call("Bergen"), "It is warm in both.", call("Tromsø"), "It is cold there.", "It is cold in both."]
ANSWERS += ["What else?", "It is windy."]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "number"}}}


@pytest.fixture(scope="module")
def script(server, tmp_path_factory):
    def ids(text):
        return server.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]

    path = tmp_path_factory.mktemp("script") / "answers.jsonl"
    letters = [[id for letter in answer for id in ids(letter)] + ids("<|im_end|>") for answer in ANSWERS]
    path.write_text("".join(json.dumps(line) + "\n" for line in letters))
    return path


@pytest.fixture
def playing(script):
    flags = ["--engine", "scripted", "--script", str(script), "--chat-template", str(TEMPLATES / "hermes.jinja")]
    server = Server(*flags, "--capture", "memory", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    yield server
    server.stop()


class Recording(httpx2.AsyncHTTPTransport):
    """Keeps what the server answers, whatever the library makes of it."""

    def __init__(self):
        super().__init__()
        self.answers = []

    async def handle_async_request(self, request):
        response = await super().handle_async_request(request)
        await response.aread()
        self.answers.append(response.text)
        return response


def values(text):
    """The JSON of an answer, or that of the events of one."""
    return events_of(text) or [json.loads(text)]


def compare(server, seen, carried="cache"):
    """Eight turns: three with a leaf each after two branches, and a summary that begins anew."""
    recorder = Recorder()
    for prompt, sampled in seen:
        recorder.saw(prompt, sampled, "agent")
    assert len(seen) == len(ANSWERS)
    assert captured(server) == recorder.trees()
    (shown,) = json.loads(server.get("/v1/trajectories"))["data"]
    assert (shown["turn_count"], shown["leaf_count"], shown["root_count"]) == (8, 3, 2)
    assert (shown["session"], shown["complete"]) == ("agent", True)
    turns = json.loads(server.get(f"/v1/trajectories/{shown['id']}"))["turns"]
    assert {turn["token_continuity"]["source"] for turn in turns if turn["parent_id"]} == {carried}
    assert all(turn["tools"] for turn in turns if turn["parent_id"] is None)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_loop_like_nemo_gyms(playing, stream):
    """Chats of which the client sends each answer back with its ids, as NeMo Gym does."""
    client = openai.OpenAI(base_url=f"{playing.url}/v1", api_key="none", max_retries=0)
    tools = [{"type": "function", "function": {"name": "weather", "description": "How warm.", "parameters": PARAMETERS}}]
    seen = []

    def answered(messages):
        extra = {"return_token_ids": True, "session_id": "agent"}
        answer = client.chat.completions.create(
            model="smollm2", messages=messages, tools=tools, stream=stream, extra_body=extra
        )
        if not stream:
            choice = answer.choices[0]
            calls = [tool_call.model_dump() for tool_call in choice.message.tool_calls or []]
            return answer.prompt_token_ids, choice.token_ids, choice.message.content, calls
        prompt, sampled, text, calls = None, [], "", {}
        for chunk in answer:
            prompt = getattr(chunk, "prompt_token_ids", None) or prompt
            for choice in chunk.choices:
                sampled += getattr(choice, "token_ids", None) or []
                text += choice.delta.content or ""
                for part in choice.delta.tool_calls or []:
                    kept = calls.setdefault(part.index, {"id": part.id, "type": "function", "name": "", "arguments": ""})
                    kept["name"] += part.function.name or ""
                    kept["arguments"] += part.function.arguments or ""
        function = [{"id": c["id"], "type": "function", "function": {k: c[k] for k in ("name", "arguments")}} for c in calls.values()]
        return prompt, sampled, text or None, function

    def run(messages):
        while True:
            prompt, sampled, text, calls = answered(messages)
            seen.append((prompt, sampled))
            ids = {"prompt_token_ids": prompt, "generation_token_ids": sampled}
            message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {}), **ids}
            messages = [*messages, message]
            if not calls:
                return messages
            for tool_call in calls:
                result = weather(**json.loads(tool_call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": tool_call["id"], "content": result})

    def user(text):
        return {"role": "user", "content": text}

    begun = run([user(FIRST)])
    for branch in BRANCHES:
        run([*begun, user(branch)])
    run([*run([user(SUMMARY)]), user(REST)])
    compare(playing, seen, "message")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_openai_agents_by_responses(playing, stream):
    recording = Recording()

    async def play():
        http = httpx2.AsyncClient(transport=recording)
        client = openai.AsyncOpenAI(
            base_url=f"{playing.url}/v1",
            api_key="none",
            max_retries=0,
            http_client=http,
            default_headers={"X-Session-ID": "agent"},
        )
        agents.set_tracing_disabled(True)
        agent = agents.Agent(
            name="forecaster",
            instructions="Answer with the weather.",
            tools=[agents.function_tool(weather)],
            model=agents.OpenAIResponsesModel(model="smollm2", openai_client=client),
            model_settings=agents.ModelSettings(response_include=["token_ids"]),
        )

        async def run(messages):
            if not stream:
                return (await agents.Runner.run(agent, messages)).to_input_list()
            result = agents.Runner.run_streamed(agent, messages)
            async for _ in result.stream_events():
                pass
            return result.to_input_list()

        def user(text):
            return {"role": "user", "content": text}

        begun = await run([user(FIRST)])
        for branch in BRANCHES:
            await run([*begun, user(branch)])
        await run([*await run([user(SUMMARY)]), user(REST)])
        await http.aclose()

    asyncio.run(play())
    answers = [values(text) for text in recording.answers]
    compare(playing, [(found(a, "prompt_token_ids"), found(a, "generation_token_ids")) for a in answers], CARRIED_BY_ITEMS)


# Items of responses carry their ids, and the library sends them back as they came.
CARRIED_BY_ITEMS = "message"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_loop_like_claude_codes(playing, stream):
    """Anthropic's client; what it knows of a turn are blocks, so that ids come from the cache."""
    client = anthropic.Anthropic(
        base_url=playing.url, api_key="none", max_retries=0, default_headers={"X-Session-ID": "agent"}
    )
    tools = [{"name": "weather", "description": "How warm.", "input_schema": PARAMETERS}]
    asked = {"model": "smollm2", "max_tokens": 200, "system": "Answer with the weather.", "tools": tools}
    seen = []

    def answered(messages):
        extra = {"return_token_ids": True}
        if not stream:
            answer = client.messages.create(**asked, messages=messages, extra_body=extra)
            seen.append((answer.prompt_token_ids, answer.generation_token_ids))
            return answer.content
        with client.messages.stream(**asked, messages=messages, extra_body=extra) as events:
            told = [json.loads(event.model_dump_json(warnings=False)) for event in events]
            content = events.get_final_message().content
        seen.append((found(told, "prompt_token_ids"), found(told, "generation_token_ids")))
        return content

    def run(messages):
        while True:
            content = answered(messages)
            blocks = [{key: value for key, value in block.model_dump().items() if value is not None} for block in content]
            messages = [*messages, {"role": "assistant", "content": blocks}]
            calls = [block for block in content if block.type == "tool_use"]
            if not calls:
                return messages
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": weather(**block.input)} for block in calls
            ]
            messages.append({"role": "user", "content": results})

    def user(text):
        return {"role": "user", "content": text}

    begun = run([user(FIRST)])
    for branch in BRANCHES:
        run([*begun, user(branch)])
    run([*run([user(SUMMARY)]), user(REST)])
    compare(playing, seen)
