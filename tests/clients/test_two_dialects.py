"""Two clients at once over the same conversation, one in vLLM's words and one in SGLang's: the same ids, log-probs to the bit."""

import threading

import pytest

QUESTIONS = ["Name a river.", "Where does it end?", "And another one?", "Which of the two is longer?"]
TOKENS = 24


class Talk:
    """A conversation whose client keeps the ids of each turn on its messages."""

    def __init__(self, server, sampling):
        self.server, self.sampling = server, sampling
        self.messages, self.turns = [], []

    def turn(self, number, question):
        self.messages.append({"role": "user", "content": question})
        prompt, tokens, logprobs, text = self.ask(self.sampling["seed"] + number)
        self.turns.append((prompt, tokens, logprobs))
        carried = {"prompt_token_ids": prompt, "generation_token_ids": tokens, "generation_log_probs": logprobs}
        self.messages.append({"role": "assistant", "content": text, **carried})


class Vllm(Talk):
    def ask(self, seed):
        body = {**self.sampling, "seed": seed, "max_tokens": TOKENS, "logprobs": True, "return_token_ids": True}
        answer = self.server.post("/v1/chat/completions", messages=self.messages, **body)
        message = answer["choices"][0]["message"]
        tokens = message["generation_token_ids"]
        return answer["prompt_token_ids"], tokens, message["generation_log_probs"], message["content"]


class Sglang(Talk):
    def ask(self, seed):
        prompt = self.server.post("/tokenize", messages=self.messages)["tokens"]
        params = {key: value for key, value in self.sampling.items() if key != "seed"}
        params = {**params, "sampling_seed": seed, "max_new_tokens": TOKENS}
        answer = self.server.post("/generate", input_ids=prompt, sampling_params=params, return_logprob=True)
        sampled = answer["meta_info"]["output_token_logprobs"]
        return prompt, [token for _, token, _ in sampled], [logprob for logprob, _, _ in sampled], answer["text"]


@pytest.mark.parametrize("sampling", [{"temperature": 0, "seed": 1}, {"temperature": 1, "top_p": 0.9, "top_k": 40, "seed": 7}])
def test_two_clients_at_once_have_the_same_ids_and_log_probs(server, sampling):
    talks = [Vllm(server, sampling), Sglang(server, sampling)]
    together = threading.Barrier(len(talks))
    failures = []

    def hold(talk):
        try:
            for number, question in enumerate(QUESTIONS):
                together.wait()
                talk.turn(number, question)
        except BaseException as error:  # noqa: BLE001 (the other one must not wait for ever)
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=hold, args=(talk,), daemon=True) for talk in talks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for number, (ours, theirs) in enumerate(zip(talks[0].turns, talks[1].turns, strict=True)):
        assert ours == theirs, f"turn {number}"
    for (prompt, tokens, _), (later, _, _) in zip(talks[0].turns, talks[0].turns[1:]):
        assert later[: len(prompt) + len(tokens)] == prompt + tokens
