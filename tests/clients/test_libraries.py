"""Client libraries, unmodified and without a word about ids: chat, stream, tools and completions each."""

import json

import litellm
import openai
import pytest
from conftest import by_node
from langchain_openai import ChatOpenAI, OpenAI

QUESTION = "Name three rivers of Europe."
PROMPT = "The three longest rivers of Europe are"
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
# Arguments of a forced call keep to the schema of a strict tool only, as in vLLM.
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": PARAMETERS,
        "strict": True,
    },
}
litellm.suppress_debug_info = True


def settings(server):
    return {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}


def by_openai(server):
    client = openai.OpenAI(**settings(server))
    asked = {"model": "smollm2", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 12, "temperature": 0}
    chat = client.chat.completions.create(**asked).choices[0].message.content
    chunks = client.chat.completions.create(**asked, stream=True)
    stream = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    called = client.chat.completions.create(**{**asked, "max_tokens": 200}, tools=[WEATHER], tool_choice="required")
    [call] = called.choices[0].message.tool_calls
    completion = client.completions.create(model="smollm2", prompt=PROMPT, max_tokens=12, temperature=0).choices[0].text
    return chat, stream, (call.function.name, json.loads(call.function.arguments)), completion


def by_langchain(server):
    options = {**settings(server), "model": "smollm2", "temperature": 0}
    model = ChatOpenAI(**options, max_tokens=12)
    chat = model.invoke(QUESTION).content
    stream = "".join(chunk.content for chunk in model.stream(QUESTION))
    tools = ChatOpenAI(**options, max_tokens=200).bind_tools([WEATHER], tool_choice="required")
    [call] = tools.invoke(QUESTION).tool_calls
    completion = OpenAI(**options, max_tokens=12).invoke(PROMPT)
    return chat, stream, (call["name"], call["args"]), completion


def by_litellm(server):
    options = {"api_base": f"{server.url}/v1", "api_key": "none", "temperature": 0}
    asked = {"model": "hosted_vllm/smollm2", "messages": [{"role": "user", "content": QUESTION}], **options}
    chat = litellm.completion(**asked, max_tokens=12).choices[0].message.content
    chunks = litellm.completion(**asked, max_tokens=12, stream=True)
    stream = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    called = litellm.completion(**asked, max_tokens=200, tools=[WEATHER], tool_choice="required")
    [call] = called.choices[0].message.tool_calls
    model = "text-completion-openai/smollm2"
    completion = litellm.text_completion(model=model, prompt=PROMPT, max_tokens=12, **options).choices[0].text
    return chat, stream, (call.function.name, json.loads(call.function.arguments)), completion


def by_openai_for_node(server):
    asked = {"url": f"{server.url}/v1", "question": QUESTION, "prompt": PROMPT, "tool": WEATHER}
    said = by_node("client.cjs", asked)
    name, arguments = said["call"]
    return said["chat"], said["stream"], (name, json.loads(arguments)), said["completion"]


@pytest.mark.parametrize("library", [by_openai, by_langchain, by_litellm, by_openai_for_node])
def test_a_library_chats_streams_calls_and_completes(tool_server, library):
    chat, stream, (name, arguments), completion = library(tool_server)
    assert chat == stream != ""
    assert name == "get_weather"
    # litellm leaves `strict` out of what it sends.
    assert isinstance(arguments, dict) if library is by_litellm else isinstance(arguments["city"], str)
    asked = {"temperature": 0, "max_tokens": 12}
    said = tool_server.post("/v1/chat/completions", messages=[{"role": "user", "content": QUESTION}], **asked)
    assert chat == said["choices"][0]["message"]["content"]
    assert completion == tool_server.post("/v1/completions", prompt=PROMPT, **asked)["choices"][0]["text"]
