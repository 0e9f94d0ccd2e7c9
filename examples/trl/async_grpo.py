"""Trains an adapter with TRL's own AsyncGRPOTrainer against a `tito serve`, on a processor.

    pip install -r requirements.txt
    python async_grpo.py --tito path/to/tito --model DIRECTORY

TRL 1.16 takes a GPU for granted. Three things of it are replaced here, and none is between the trainer and tito: its attention over
packed samples, which is a kernel for GPUs; its question how fast the GPU is; and its question whether the package vllm is installed, of
which it uses nothing with LoRA.

Ends with an error if the log-probs that tito returned are not those of the trainer's own model: TRL reports their difference as `kl`.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import types
import urllib.request

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoTokenizer, TrainerCallback
from trl.chat_template_utils import qwen2_5_chat_template
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, async_rollout_worker, packing

QUESTIONS = ["Say a number.", "In which year?", "How many apples are there?", "What is your telephone number?"]
RANK, STALENESS = 8, 2
# TRL's estimate of the divergence between the policy that sampled and the trainer's own, at the first pass over a sample.
LARGEST_KL = 1e-3


def digits(completions, **_):
    """The reward: which part of an answer is digits."""
    texts = [completion[0]["content"] for completion in completions]
    return [sum(letter.isdigit() for letter in text) / max(len(text), 1) for text in texts]


def attention(query, key, value, starts, key_starts, *_, softmax_scale=None, **named):
    """What flash_attn_varlen_func computes: each segment of queries, which ends with its keys, looks at itself and what is before."""
    assert named.get("window_size", (-1, -1)) == (-1, -1), "this model has a sliding window"
    parts = []
    for (first, last), (key_first, key_last) in zip(pairs(starts), pairs(key_starts), strict=True):
        queries, keys, values = (
            part.transpose(0, 1)
            for part in (query[first:last], key[key_first:key_last], value[key_first:key_last])
        )
        seen = torch.ones(queries.shape[1], keys.shape[1], dtype=torch.bool).tril(keys.shape[1] - queries.shape[1])
        computed = torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=seen, scale=softmax_scale, enable_gqa=True
        )
        parts.append(computed.transpose(0, 1))
    return torch.cat(parts)


def pairs(starts):
    starts = starts.tolist()
    return list(zip(starts[:-1], starts[1:], strict=True))


def on_a_processor():
    packing._flash_attn = lambda: types.SimpleNamespace(flash_attn_varlen_func=attention)
    async_rollout_worker.is_vllm_available = lambda *_, **__: True
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None


class Logged(TrainerCallback):
    """Keeps what the trainer logs."""

    def __init__(self):
        self.steps = []

    def on_log(self, args, state, control, logs=None, **_):
        if logs and "kl" in logs:
            self.steps.append(logs)


def served(binary, model, log):
    """A `tito serve` with the flags of docs/guides/trl.md, and its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = ["--dtype", "float32", "--enable-lora", "--max-loras", str(STALENESS + 2), "--max-lora-rank", str(RANK)]
    flags += ["--max-logprobs", "-1", "--logprobs-mode", "processed_logprobs", "--admin-on-main-port", "--insecure-admin"]
    flags += ["--max-model-len", "512", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([binary, "serve", str(model), *flags], stderr=log, stdin=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            urllib.request.urlopen(f"{url}/health").close()
            return process, url
        except OSError:
            if process.poll() is not None:
                sys.exit(f"the server did not start:\n{pathlib.Path(log.name).read_text()}")
            time.sleep(0.1)


def trained(url, model, steps, directory):
    """What TRL logs of each step."""
    logged = Logged()
    config = AsyncGRPOConfig(
        output_dir=directory,
        vllm_server_base_url=url,
        max_steps=steps,
        max_staleness=STALENESS,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=1,
        num_generations=4,
        max_completion_length=16,
        max_inflight_tasks=8,
        token_budget=-1,
        learning_rate=1e-4,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )
    prompts = [[{"role": "user", "content": question}] for question in QUESTIONS]
    # TRL only reads answers of templates that it knows. It sends ids, so that the server's own template does not matter.
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = qwen2_5_chat_template
    trainer = AsyncGRPOTrainer(
        model=str(model),
        reward_funcs=digits,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts * 8}),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=RANK, target_modules=["q_proj", "v_proj"]),
        callbacks=[logged],
    )
    trainer.train()
    return logged.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tito", required=True, help="the program")
    parser.add_argument("--model", required=True, type=pathlib.Path, help="a directory with a chat model, such as SmolLM2-135M-Instruct")
    parser.add_argument("--steps", type=int, default=4)
    asked = parser.parse_args()
    on_a_processor()
    with tempfile.TemporaryDirectory() as directory, tempfile.NamedTemporaryFile(suffix=".log") as log:
        process, url = served(asked.tito, asked.model, log)
        try:
            steps = trained(url, asked.model, asked.steps, directory)
        finally:
            process.terminate()
            process.wait()
    for number, step in enumerate(steps, 1):
        print(json.dumps({"step": number, **{key: step.get(key) for key in ("kl", "ratio", "reward", "loss")}}))
    assert len(steps) == asked.steps, f"{len(steps)} steps of {asked.steps}"
    worst = max(abs(step["kl"]) for step in steps)
    assert worst < LARGEST_KL, f"kl is {worst}: tito's log-probs are not the trainer's"
    print(f"{asked.steps} steps, kl at most {worst:.1e}")


if __name__ == "__main__":
    main()
