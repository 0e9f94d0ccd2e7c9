"""The official `openai` client: answers, streams, and ids that go out and come back as extra fields of messages."""

import openai
import pytest

IDS = {"return_token_ids": True}
QUESTION = [{"role": "user", "content": "Name three rivers of Europe."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def chat(client, messages, extra=IDS, **options):
    return client.chat.completions.create(model="smollm2", messages=messages, extra_body=extra, **options)


def sent_back(answer):
    """The answer's message as clients send it back: every field, whether the client's types know it or not."""
    return answer.choices[0].message.model_dump(exclude_none=True)


def known_ids(message):
    return message["prompt_token_ids"] + message["generation_token_ids"]


def assert_continues(turn, message):
    """The prompt of `turn` starts with every id that `message` carries."""
    known = known_ids(message)
    assert turn.prompt_token_ids[: len(known)] == known
    assert len(turn.prompt_token_ids) > len(known)


def test_a_chat_answers_with_ids(client):
    answer = chat(client, QUESTION, max_tokens=24, temperature=0)
    message = answer.choices[0].message
    assert answer.object == "chat.completion"
    assert message.content
    assert answer.usage.prompt_tokens == len(answer.prompt_token_ids)
    assert answer.usage.completion_tokens == len(answer.choices[0].token_ids)
    assert message.prompt_token_ids == answer.prompt_token_ids
    assert message.generation_token_ids == answer.choices[0].token_ids
    assert len(message.generation_log_probs) == len(message.generation_token_ids)


def test_an_answer_without_ids_asked_for_has_none(client):
    answer = chat(client, QUESTION, extra={}, max_tokens=4, temperature=0)
    assert answer.prompt_token_ids is None
    assert answer.choices[0].token_ids is None
    assert not hasattr(answer.choices[0].message, "generation_token_ids")


def test_a_stream_is_the_same_answer_in_pieces(client):
    whole = chat(client, QUESTION, max_tokens=24, temperature=1.0, seed=7, logprobs=True)
    stream = chat(
        client,
        QUESTION,
        max_tokens=24,
        temperature=1.0,
        seed=7,
        logprobs=True,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, ids, logprobs, prompt, finish, usage = "", [], [], None, None, None
    for chunk in stream:
        prompt = getattr(chunk, "prompt_token_ids", None) or prompt
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            ids += getattr(choice, "token_ids", None) or []
            logprobs += choice.logprobs.content if choice.logprobs else []
            finish = choice.finish_reason or finish
    assert text == whole.choices[0].message.content
    assert ids == whole.choices[0].token_ids
    assert prompt == whole.prompt_token_ids
    assert finish == whole.choices[0].finish_reason
    assert logprobs == whole.choices[0].logprobs.content
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_a_plain_second_turn_starts_with_all_ids_of_the_first(client):
    message = sent_back(chat(client, QUESTION, max_tokens=64, temperature=1.0, seed=1))
    second = chat(client, [*QUESTION, message, {"role": "user", "content": "One more."}], max_tokens=8)
    assert_continues(second, message)


def test_a_third_turn_starts_with_all_ids_of_the_second(client):
    messages, known = [*QUESTION], []
    for seed in range(3):
        answer = chat(client, messages, max_tokens=12, temperature=1.2, seed=seed)
        assert answer.prompt_token_ids[: len(known)] == known
        message = sent_back(answer)
        known = known_ids(message)
        messages += [message, {"role": "user", "content": f"Go on, part {seed + 2}."}]


def test_a_turn_cut_by_max_tokens_is_closed_by_the_template(client):
    answer = chat(client, QUESTION, max_tokens=3, temperature=0)
    assert answer.choices[0].finish_reason == "length"
    message = sent_back(answer)
    second = chat(client, [*QUESTION, message, {"role": "user", "content": "Go on."}], max_tokens=4)
    assert_continues(second, message)
    end = client.post("/tokenize", body={"prompt": "<|im_end|>"}, cast_to=object)["tokens"]
    known = known_ids(message)
    assert second.prompt_token_ids[len(known) : len(known) + 1] == end


def test_turns_sampled_hot_survive_although_their_text_encodes_differently(client):
    drifted = 0
    for seed in range(12):
        message = sent_back(chat(client, QUESTION, max_tokens=40, temperature=1.5, seed=seed))
        second = [*QUESTION, message, {"role": "user", "content": "Why?"}]
        assert_continues(chat(client, second, max_tokens=2, temperature=1.5, seed=seed), message)
        plain = [*QUESTION, {"role": "assistant", "content": message["content"]}, second[-1]]
        # An empty prefix declines what the server remembers of the conversation.
        body = {"messages": plain, "required_prefix_token_ids": []}
        encoded = client.post("/tokenize", body=body, cast_to=object)["tokens"]
        known = known_ids(message)
        drifted += encoded[: len(known)] != known
    assert drifted, "no turn encodes differently: the test shows nothing"


def test_a_tool_conversation_keeps_its_ids(tool_client):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    options = {"tools": [WEATHER], "tool_choice": "none", "max_tokens": 48, "temperature": 1.3, "seed": 3}
    first = chat(tool_client, messages, **options)
    message = sent_back(first)
    result = {"role": "tool", "tool_call_id": "call_0", "content": '{"celsius": 21, "sky": "clear"}'}
    second = chat(tool_client, [*messages, message, result], **options)
    assert_continues(second, message)
    shown = tool_client.post("/detokenize", body={"tokens": second.prompt_token_ids}, cast_to=object)["prompt"]
    assert '"name": "get_weather"' in shown
    assert '<tool_response>\n{"celsius": 21, "sky": "clear"}\n</tool_response>' in shown


def test_calls_that_the_client_parsed_keep_their_ids(tool_client):
    """A client may put the call that it found in the text into `tool_calls`; the ids stay those that were sampled."""
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    options = {"tools": [WEATHER], "tool_choice": "none", "max_tokens": 32}
    message = sent_back(chat(tool_client, messages, temperature=1.3, seed=5, **options))
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    message |= {"content": "", "tool_calls": [{"id": "call_0", "type": "function", "function": function}]}
    result = {"role": "tool", "tool_call_id": "call_0", "content": "21 degrees"}
    assert_continues(chat(tool_client, [*messages, message, result], temperature=0, **options), message)


def test_log_probs_name_tokens_by_id_where_asked(client):
    extra = {**IDS, "return_tokens_as_token_ids": True}
    answer = chat(client, QUESTION, extra=extra, max_tokens=8, temperature=0, logprobs=True, top_logprobs=3)
    choice = answer.choices[0]
    assert [entry.token for entry in choice.logprobs.content] == [f"token_id:{id}" for id in choice.token_ids]
    for entry, logprob in zip(choice.logprobs.content, choice.message.generation_log_probs, strict=True):
        assert entry.logprob == logprob <= 0
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == max(top.logprob for top in entry.top_logprobs) == entry.logprob


def test_several_choices_are_several_samples(client):
    answer = chat(client, QUESTION, n=3, max_tokens=16, temperature=1.5, seed=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({tuple(choice.token_ids) for choice in answer.choices}) == 3


def test_a_completion_takes_text_or_ids(client):
    text = client.completions.create(
        model="smollm2", prompt="The capital of France is", max_tokens=8, temperature=0, extra_body=IDS
    )
    ids = text.choices[0].prompt_token_ids
    again = client.completions.create(model="smollm2", prompt=ids, max_tokens=8, temperature=0, extra_body=IDS)
    assert again.choices[0].prompt_token_ids == ids
    assert again.choices[0].token_ids == text.choices[0].token_ids
    assert "Paris" in text.choices[0].text


def test_completions_of_several_prompts_keep_their_order(client):
    prompts = ["One, two,", "Red, green,"]
    answer = client.completions.create(model="smollm2", prompt=prompts, n=2, max_tokens=4, seed=0, extra_body=IDS)
    encoded = [client.post("/tokenize", body={"prompt": prompt}, cast_to=object)["tokens"] for prompt in prompts]
    assert [choice.prompt_token_ids for choice in answer.choices] == [encoded[0], encoded[0], encoded[1], encoded[1]]


def test_a_streamed_completion_is_the_same_completion(client):
    options = {"model": "smollm2", "prompt": "Once upon a time", "max_tokens": 16, "seed": 4, "extra_body": IDS}
    whole = client.completions.create(**options).choices[0]
    pieces = [chunk.choices[0] for chunk in client.completions.create(**options, stream=True)]
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [id for piece in pieces for id in piece.token_ids or []] == whole.token_ids


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["smollm2"]


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=QUESTION)
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, QUESTION, temperature=-1)
    assert refused.value.body["param"] == "temperature"
