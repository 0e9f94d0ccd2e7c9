"""The Responses API by the official client and by openai-agents: three turns of a tool loop, token-exact.

The answers are played from a file, spelt letter by letter, so that encoding their texts again gives other ids.
"""

import asyncio
import json
import tempfile

import agents
import openai
import pydantic
import pytest
from conftest import TEMPLATES, Server, by_node, client_of
from test_agents import QUESTIONS, Recording, call, weather

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "number"}}}
TOOLS = [{"type": "function", "name": "weather", "description": "How warm.", "parameters": PARAMETERS, "strict": False}]
LOOP = [call("Oslo"), call("Bergen"), "It is warm in both.", call("Tromsø"), "It is cold there."]
IDS = ["prompt_token_ids", "generation_token_ids", "generation_log_probs"]


@pytest.fixture
def playing(server):
    """Servers that play answers, one for each conversation, since it plays them in order."""
    started = []

    def letters(text):
        return [id for letter in text for id in server.post("/tokenize", prompt=letter, add_special_tokens=False)["tokens"]]

    def play(answers, *flags):
        end = server.post("/tokenize", prompt="<|im_end|>", add_special_tokens=False)["tokens"]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(letters(answer) + end) + "\n" for answer in answers)
            file.flush()
            flags = ["--engine", "scripted", "--script", file.name, *flags]
            flags += ["--chat-template", str(TEMPLATES / "hermes.jinja")]
            started.append(Server(*flags, "--enable-auto-tool-choice", "--tool-call-parser", "hermes"))
        return started[-1]

    yield play
    for each in started:
        each.stop()


def verdict(headers):
    source, *fields = headers["x-token-continuity"].split("; ")
    return source, dict(field.split("=") for field in fields)["outcome"]


def test_create_retrieve_and_delete(playing):
    client = client_of(playing(["Hello there."]))
    response = client.responses.create(model="smollm2", input="Hi", metadata={"k": "v"})
    assert (response.output_text, response.status, response.metadata) == ("Hello there.", "completed", {"k": "v"})
    assert client.responses.retrieve(response.id) == response
    [item] = client.responses.input_items.list(response.id)
    assert item.content[0].text == "Hi"
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


@pytest.mark.parametrize("answer", ["Hello there.", call("Oslo")])
def test_a_stream_ends_with_the_response(playing, answer):
    client = client_of(playing([answer]))
    with client.responses.stream(model="smollm2", input="Hi", tools=TOOLS) as stream:
        numbers = [event.sequence_number for event in stream if event.type != "response.output_text.delta"]
        response = stream.get_final_response()
    assert numbers == sorted(numbers)
    assert response.output == client.responses.retrieve(response.id).output or response.status == "completed"
    [item] = response.output
    assert item.type == ("function_call" if answer.startswith("<") else "message")


def test_a_background_response_is_asked_for_until_it_is_there(playing):
    client = client_of(playing(["Hello there."]))
    response = client.responses.create(model="smollm2", input="Hi", background=True)
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    assert (response.status, response.output_text) == ("completed", "Hello there.")
    events = list(client.responses.create(model="smollm2", input="Hi", background=True, stream=True))
    assert events[-1].type == "response.completed"
    streamed = events[-1].response.id
    assert list(client.responses.retrieve(streamed, stream=True)) == events
    assert list(client.responses.retrieve(streamed, stream=True, starting_after=2)) == events[3:]


def test_a_structured_answer_is_parsed(playing):
    class Person(pydantic.BaseModel):
        age: int

    client = client_of(playing(['{"age": 42}']))
    assert client.responses.parse(model="smollm2", input="Bob, 42", text_format=Person).output_parsed == Person(age=42)


def test_a_tool_loop_by_previous_response_id_keeps_every_id(playing):
    client = client_of(playing(LOOP, "--continuity-cache-size", "0"))
    known, previous, calls = [], openai.omit, 0
    for question in QUESTIONS:
        new = [{"role": "user", "content": question}]
        while new:
            raw = client.responses.with_raw_response.create(
                model="smollm2", input=new, tools=TOOLS, previous_response_id=previous, include=["token_ids"]
            )
            response = raw.parse()
            assert verdict(raw.headers) == (("message", "exact") if known else ("none", "fresh"))
            prompt, generation, log_probs = (response.output[-1].model_extra[field] for field in IDS)
            assert prompt[: len(known)] == known
            assert len(generation) == len(log_probs) == response.usage.output_tokens
            known, previous = prompt + generation, response.id
            made = [item for item in response.output if item.type == "function_call"]
            new = [
                {"type": "function_call_output", "call_id": item.call_id, "output": weather(**json.loads(item.arguments))}
                for item in made
            ]
            calls += len(made)
    assert (calls, response.output_text) == (3, LOOP[-1])


def test_the_client_for_node_is_token_exact(playing):
    person = '{"age": 42}'
    server = playing(["Hello there."] * 3 + [person] + LOOP, "--continuity-cache-size", "0")
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    schema["additionalProperties"] = False
    said = by_node("responses.cjs", {"url": f"{server.url}/v1", "questions": QUESTIONS, "tools": TOOLS, "schema": schema})
    assert said["created"] == said["streamed"] == said["folded"] == "Hello there."
    assert (said["events"][0], said["events"][-1]) == ("response.created", "response.completed")
    assert said["parsed"] == json.loads(person)
    assert (len(said["turns"]), said["said"]) == (len(LOOP), LOOP[-1])
    known = []
    for verdict, prompt, generation in said["turns"]:
        assert verdict.startswith("message; outcome=exact" if known else "none; outcome=fresh")
        assert prompt[: len(known)] == known
        known = prompt + generation


@pytest.mark.parametrize("by_id", [False, True])
def test_openai_agents_are_token_exact(playing, by_id):
    server, recording = playing(LOOP), Recording()

    async def run():
        import httpx2

        agents.set_tracing_disabled(True)
        http = httpx2.AsyncClient(transport=recording)
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=http)
        async with client:
            agent = agents.Agent(
                name="forecaster",
                instructions="Answer with the weather.",
                tools=[agents.function_tool(weather)],
                model=agents.OpenAIResponsesModel(model="smollm2", openai_client=client),
                model_settings=agents.ModelSettings(extra_body={"return_token_ids": True}),
            )
            history, previous = [], None
            for question in QUESTIONS:
                asked = {"role": "user", "content": question}
                if by_id:
                    result = await agents.Runner.run(agent, [asked], previous_response_id=previous)
                    previous = result.last_response_id
                else:
                    result = await agents.Runner.run(agent, [*history, asked])
                    history = result.to_input_list()
            return result.final_output

    assert asyncio.run(run()) == LOOP[-1]
    assert len(recording.answers) == len(LOOP)
    known = []
    for answer in recording.answers:
        item = answer["output"][-1]
        assert item["prompt_token_ids"][: len(known)] == known
        assert answer["token_continuity"]["outcome"] == ("exact" if known else "fresh")
        known = item["prompt_token_ids"] + item["generation_token_ids"]
