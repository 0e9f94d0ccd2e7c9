"""The official Anthropic client, unmodified: messages, streams, and a tool loop that is token-exact by the cache.

The answers are played from a file, spelt letter by letter, so that encoding their texts again gives other ids.
"""

import json
import tempfile

import anthropic
import pytest
from conftest import TEMPLATES, Server

QUESTIONS = ["How warm is it in Oslo and in Bergen?", "And in Tromsø?"]
TOOL = {
    "name": "weather",
    "description": "How warm it is.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "number"}}},
}


def call(city):
    return "<tool_call>\n" + json.dumps({"name": "weather", "arguments": {"city": city, "days": 1.0}}) + "\n</tool_call>"


ANSWERS = [call("Oslo"), call("Bergen"), "It is warm in both.", call("Tromsø"), "It is cold there."]


def client_of(server, **options):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=300, **options)


@pytest.fixture
def playing(server):
    """A server that plays the answers in order."""

    def letters(text):
        return [id for letter in text for id in server.post("/tokenize", prompt=letter, add_special_tokens=False)["tokens"]]

    end = server.post("/tokenize", prompt="<|im_end|>", add_special_tokens=False)["tokens"]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(letters(answer) + end) + "\n" for answer in ANSWERS)
        file.flush()
        flags = ["--engine", "scripted", "--script", file.name, "--chat-template", str(TEMPLATES / "hermes.jinja")]
        playing = Server(*flags, "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
        yield playing
        playing.stop()


def created(client, **request):
    """The message, and the verdict on its ids."""
    response = client.messages.with_raw_response.create(**request)
    return response.parse(), response.headers["X-Token-Continuity"]


def streamed(client, **request):
    with client.messages.stream(**request) as stream:
        message = stream.get_final_message()
        return message, stream.response.headers["X-Token-Continuity"]


@pytest.mark.parametrize("turn", [created, streamed])
def test_a_tool_loop_is_token_exact(playing, turn):
    client, messages, known, verdicts, texts = client_of(playing), [], [], [], []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        while True:
            request = {"model": "smollm2", "max_tokens": 200, "system": "You are terse.", "tools": [TOOL]}
            wishes = {"extra_body": {"return_token_ids": True}, "metadata": {"user_id": "conversation-1"}}
            message, verdict = turn(client, messages=messages, **request, **wishes)
            verdicts.append(verdict)
            if turn is created:
                assert message.prompt_token_ids[: len(known)] == known
                known = message.prompt_token_ids + message.generation_token_ids
            messages.append({"role": "assistant", "content": message.content})
            calls = [block for block in message.content if block.type == "tool_use"]
            assert message.stop_reason == ("tool_use" if calls else "end_turn")
            texts += [block.text for block in message.content if block.type == "text"]
            if not calls:
                break
            assert all(call.input["days"] == 1.0 for call in calls)
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": f"{call.input['city']}: 7 degrees"}
                for call in calls
            ]
            messages.append({"role": "user", "content": results})
    assert texts == [ANSWERS[2], ANSWERS[4]]
    assert verdicts[0].startswith("none; outcome=fresh")
    assert len(verdicts) == len(ANSWERS)
    assert all(verdict.startswith("cache; outcome=exact") for verdict in verdicts[1:]), verdicts


def test_the_real_model_answers_alike_streamed_and_not_and_as_a_chat(server, client):
    anthropic_client = client_of(server)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    request = {"model": "smollm2", "max_tokens": 12, "messages": messages, "extra_body": {"temperature": 0}}
    message, _ = created(anthropic_client, **request)
    stream, _ = streamed(anthropic_client, **request)
    chat = client.chat.completions.create(model="smollm2", max_tokens=12, messages=messages, temperature=0)
    assert [block.text for block in message.content] == [chat.choices[0].message.content]
    assert [block.text for block in message.content] == [block.text for block in stream.content]
    assert (message.usage.input_tokens, message.usage.output_tokens) == (
        chat.usage.prompt_tokens,
        chat.usage.completion_tokens,
    )
    assert stream.usage.output_tokens == message.usage.output_tokens
    assert message._request_id == message.id
    count = anthropic_client.messages.count_tokens(model="smollm2", messages=messages)
    assert count.input_tokens == message.usage.input_tokens


def test_errors_are_the_clients_own(server):
    client = client_of(server)
    request = {"max_tokens": 4, "messages": [{"role": "user", "content": "hello"}]}
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="other", **request)
    assert missing.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        client.messages.create(model="smollm2", **request, extra_body={"temperature": 9})


def test_what_the_prefix_cache_had_is_told_apart():
    server = Server("--enable-prompt-tokens-details")
    try:
        client = client_of(server)
        messages = [{"role": "user", "content": "What is the capital of France? " * 12}]
        request = {"model": "smollm2", "max_tokens": 2, "messages": messages}
        count = client.messages.count_tokens(model="smollm2", messages=messages).input_tokens
        cold, _ = created(client, **request)
        warm, _ = created(client, **request)
        stream, _ = streamed(client, **request)
        assert (cold.usage.input_tokens, cold.usage.cache_read_input_tokens) == (count, 0)
        for usage in (warm.usage, stream.usage):
            assert usage.cache_read_input_tokens > 0
            assert usage.input_tokens + usage.cache_read_input_tokens == count
    finally:
        server.stop()
