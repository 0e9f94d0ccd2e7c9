"""The rollout `tito` of verl 0.9.1: each of its replicas is a server that `tito.ray` starts.

verl imports this module in each of its processes if `VERL_USE_EXTERNAL_MODULES=tito_verl` is in their environment, and finds
the name that `rollout.yaml` gives to `actor_rollout_ref.rollout.name`. It generates; verl's weights stay where they are.
"""

import asyncio
from typing import Any

import aiohttp
import ray
from verl.workers.rollout.replica import RolloutMode, RolloutReplica, RolloutReplicaRegistry, TokenOutput

import tito.ray

NAME = "tito"
WEIGHTS = "verl hands weights over in GPU memory, which tito does not take: use the rollout `tito` to generate, judge or teach"
# Of `engine_kwargs.tito`, what is not a flag of `tito serve`.
OF_REPLICAS = {"binary", "cpus", "environment", "gpus", "start_seconds", "stop_seconds"}
# What verl calls the end of an answer.
STOP_REASONS = {"stop": "completed", "length": "completed", "abort": "aborted"}
PASSED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "ignore_eos", "seed", "stop", "stop_token_ids", "min_tokens")


def settings(config: Any, model: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `tito.ray.Replicas` and what `tito serve` are given for a `RolloutConfig` of verl.

    Raises:
        ValueError: If verl would expect what the server does not do.

    """
    refused = {
        "tensor_model_parallel_size": config.tensor_model_parallel_size != 1,
        "data_parallel_size": config.data_parallel_size != 1,
        "pipeline_model_parallel_size": config.pipeline_model_parallel_size != 1,
        "quantization": config.quantization is not None,
        "full_determinism": config.full_determinism,
        "enable_rollout_routing_replay": config.enable_rollout_routing_replay,
        "mtp.enable_rollout": config.mtp.enable_rollout,
        "disaggregation.enabled": config.disaggregation.enabled,
    }
    if wrong := [name for name, is_set in refused.items() if is_set]:
        raise ValueError(f"rollout.{wrong[0]}: a replica of `{NAME}` is one plain server on one GPU; leave it at its default")
    own = dict(config.engine_kwargs.get(NAME) or {})
    replicas = {"gpus": 1, **{name: own.pop(name) for name in OF_REPLICAS & own.keys()}}
    flags = {
        "dtype": config.dtype,
        "served_model_name": model,
        "max_model_len": config.max_model_len or config.prompt_length + config.response_length,
        "max_num_seqs": config.max_num_seqs,
        "logprobs_mode": config.logprobs_mode,
        **own,
    }
    return replicas, flags


class Generation:
    """What verl's agent loops ask: ids in, ids out, as `vLLMHttpServer.generate` of verl takes and gives them."""

    def __init__(self, replicas: tito.ray.Replicas, model: str, lengths: tuple[int, int, int]) -> None:
        """Over one server; `lengths` are those of prompts, of answers, and of both in the model."""
        self._replicas, self._model, self._lengths = replicas, model, lengths
        self._url: str | None = None
        self._http: aiohttp.ClientSession | None = None

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, priority: int = 0, **media: Any
    ) -> TokenOutput:
        """Samples an answer.

        Raises:
            ValueError: If something is asked that the server is not told.
            RuntimeError: If it refuses, with its words.

        """
        asked = dict(sampling_params)
        wants_log_probs = asked.pop("logprobs", False)
        longest = asked.pop("max_tokens", asked.pop("max_new_tokens", None))
        prompts, answers, window = self._lengths
        if longest is None:
            longest = min(answers, prompts + answers - len(prompt_ids))
        if unknown := [name for name in asked if name not in PASSED] + [name for name, value in media.items() if value]:
            raise ValueError(f"{unknown[0]}: the rollout `{NAME}` does not pass it on")
        if len(prompt_ids) >= window:
            raise ValueError(f"a prompt of {len(prompt_ids)} tokens leaves no room in the model's {window}")
        asked |= {"max_tokens": max(1, min(longest, window - len(prompt_ids))), "logprobs": 0}
        body = {"model": self._model, "token_ids": list(prompt_ids), "sampling_params": asked, "priority": priority}
        choice = (await self._ask({**body, "request_id": request_id}))["choices"][0]
        return TokenOutput(
            token_ids=choice["token_ids"],
            log_probs=[token["logprob"] for token in choice["logprobs"]["content"]] if wants_log_probs else None,
            stop_reason=STOP_REASONS.get(choice["finish_reason"], choice["finish_reason"]),
            extra_fields={"global_steps": None, "weight_versions": choice["weight_versions"]},
        )

    async def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """A server that was started again has another address: it is looked up, and asked once more if it was not reached."""
        if self._http is None:
            # A connection that was idle may be one of a server that has ended.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._http = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        for attempt in range(2):
            if self._url is None:
                [state] = await self._replicas.states_of_now()
                if state.url is None:
                    raise RuntimeError(f"replica {state.number} takes no requests: {state.reason or state.state}")
                self._url = state.url
            try:
                async with self._http.post(f"{self._url}/inference/v1/generate", json=body) as answer:
                    if answer.status != 200:  # noqa: PLR2004 (the status of a whole answer)
                        raise RuntimeError(f"{answer.status}: {await answer.text()}")
                    return await answer.json()
            except aiohttp.ClientConnectorError:
                self._url = None
                if attempt:
                    raise
        raise AssertionError("the last attempt returns or raises")


class TitoReplica(RolloutReplica):
    """One server, with its own place on Ray."""

    async def init_standalone(self) -> None:
        """As verl starts a rollout that generates, judges or teaches."""
        self.rollout_mode = RolloutMode.STANDALONE
        await self.launch_servers()

    async def launch_servers(self) -> None:
        """Starts it, and waits until it answers."""
        model = str(self.model_config["path"])
        options, flags = settings(self.config, model)
        self._replicas = await asyncio.to_thread(tito.ray.Replicas, model, 1, **options, **flags)
        lengths = (self.config.prompt_length, self.config.response_length, flags["max_model_len"])
        generation = ray.remote(Generation).options(num_cpus=0, max_concurrency=self.max_concurrency)
        self._server_handle = generation.remote(self._replicas, model, lengths)
        self.servers = [self._server_handle]
        self._server_address = self._replicas.urls()[0].removeprefix("http://")

    async def init_hybrid(self, *_: Any, **__: Any) -> None:
        """As a trainer starts it that shares its GPUs, and then its weights, with the rollout."""
        raise NotImplementedError(WEIGHTS)

    init_hybrid_colocated = init_colocated = init_hybrid

    async def abort_all_requests(self, *_: Any, **__: Any) -> None:
        """What verl begins an update of the weights with: the old ones would be sampled from, as if they were the new ones."""
        raise NotImplementedError(WEIGHTS)

    async def sleep(self) -> None:
        """Nothing: as of verl's other rollouts with GPUs of their own."""

    wake_up = sleep


RolloutReplicaRegistry.register(NAME, lambda: TitoReplica)
