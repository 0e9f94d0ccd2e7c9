"""Teaches a model to answer in digits by an adapter, with tito to sample: GRPO with PEFT on a processor.

    pip install -r requirements.txt
    python train.py --tito path/to/tito --model DIRECTORY

Each step loads its adapter under a new name, as TRL's asynchronous GRPO does, samples from it by that name, and unloads the one
before the last. Every sampled token is scored again by the trainer's own model with the adapter that its answer names.
"""

import argparse
import concurrent.futures
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import peft
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTIONS = ["My telephone number is", "The year was", "She counted the apples:", "The answer is"]
# Answers to the same question that are compared with each other, and how many tokens each has.
GROUP, TOKENS = 8, 16
# Between float32 here and there.
TOLERANCE = 1e-3


class Server:
    """A `tito serve`, and the calls that a training loop makes of it."""

    def __init__(self, binary, model):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [binary, "serve", str(model), "--port", str(port), "--host", "127.0.0.1", "--dtype", "float32"]
        command += ["--engine", "native", "--enable-lora", "--max-loras", "2", "--max-lora-rank", "8"]
        command += ["--admin-on-main-port", "--insecure-admin"]
        self.log = tempfile.NamedTemporaryFile(prefix="tito-", suffix=".log")  # noqa: SIM115
        self.process = subprocess.Popen(command, stderr=self.log, stdin=subprocess.DEVNULL)
        while not self.is_up():
            if self.process.poll() is not None:
                sys.exit(f"the server did not start:\n{pathlib.Path(self.log.name).read_text()}")
            time.sleep(0.1)

    def is_up(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health"):
                return True
        except OSError:
            return False

    def post(self, path, **body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.read()

    def sample(self, name, prompt, seed):
        """The ids of an answer, their log-probs, and what the server says that it sampled them with."""
        asked = {"max_tokens": TOKENS, "temperature": 1.0, "logprobs": 0, "ignore_eos": True, "seed": seed}
        asked |= {"return_token_ids": True, "return_weight_versions": True}
        [choice] = json.loads(self.post("/v1/completions", model=name, prompt=prompt, **asked))["choices"]
        versions = {span["version"] for span in choice["weight_versions"]}
        assert versions == {f"{name}@1"}, versions
        return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def log_probs(model, prompt, answers):
    """What the model says of each id of answers to one prompt."""
    ids = torch.tensor([prompt + answer for answer in answers])
    scores = torch.log_softmax(model(ids).logits[:, len(prompt) - 1 : -1].float(), -1)
    return scores.gather(-1, ids[:, len(prompt) :, None])[..., 0]


def reward(text):
    """The share of digits."""
    return sum(letter.isdigit() for letter in text) / max(len(text), 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tito", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    prompts = [tokenizer(question)["input_ids"] for question in QUESTIONS]
    base = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
    model = peft.get_peft_model(base, config)
    optimiser = torch.optim.AdamW([part for part in model.parameters() if part.requires_grad], lr=1e-3)
    server, rewards, worst = Server(arguments.tito, arguments.model), [], 0.0
    with tempfile.TemporaryDirectory() as root, concurrent.futures.ThreadPoolExecutor(GROUP * len(prompts)) as pool:
        for step in range(1, arguments.steps + 1):
            name = f"policy-v{step}"
            model.save_pretrained(f"{root}/{name}")
            started = time.perf_counter()
            server.post("/pause?mode=keep")
            server.post("/v1/load_lora_adapter", lora_name=name, lora_path=f"{root}/{name}")
            server.post("/resume")
            loaded = time.perf_counter() - started
            if step > 2:
                server.post("/v1/unload_lora_adapter", lora_name=f"policy-v{step - 2}")
            calls = [pool.submit(server.sample, name, prompt, 1000 * step + n) for prompt in prompts for n in range(GROUP)]
            samples = [call.result() for call in calls]
            optimiser.zero_grad()
            for number, prompt in enumerate(prompts):
                group = samples[number * GROUP : (number + 1) * GROUP]
                scored = log_probs(model, prompt, [ids for ids, _ in group])
                worst = max(worst, (scored.detach() - torch.tensor([old for _, old in group])).abs().max().item())
                given = torch.tensor([reward(tokenizer.decode(ids)) for ids, _ in group])
                rewards.append(given.mean().item())
                advantage = (given - given.mean()) / (given.std() + 1e-4)
                (-(advantage[:, None] * scored).mean() / len(prompts)).backward()
            optimiser.step()
            mean = sum(rewards[-len(prompts) :]) / len(prompts)
            print(f"step {step:2}  reward {mean:.3f}  worst {worst:.1e}  loaded in {1000 * loaded:.0f} ms", flush=True)
    server.process.terminate()
    assert worst < TOLERANCE, f"a token's log-prob is not the trainer's: {worst}"
    first, last = (sum(part) / len(prompts) for part in (rewards[: len(prompts)], rewards[-len(prompts) :]))
    print(f"reward {first:.3f} -> {last:.3f}")


if __name__ == "__main__":
    main()
