#!/usr/bin/env python3
"""Records what NeMo Gym's model server sends for a conversation with images, by its own program, unchanged.

    TITO_BIN=… TITO_TEST_MODEL=… venv/bin/python tests/golden/frameworks/record_images.py

The environment is that of record.py. Its model server runs as in production, over HTTP, and is asked as its agents ask it: the output of
a turn is part of the next turn's input. tito serves the tiny model of tests/clients/test_images.py behind it.
"""

import asyncio
import importlib.metadata
import json
import pathlib
import sys
import tempfile

import httpx

from record import HERE, RECORDED, Between, served

sys.path.insert(0, str(HERE.parents[1] / "reference"))

from conftest import Server  # noqa: E402
from test_images import BIASES, GOLDEN, SHARED, url_of, write  # noqa: E402

CASE = json.loads((GOLDEN / "qwen3_vl.json").read_text())
NAMES = ["two images", "an image in the second turn", "images in both turns"]
VARIANTS = ["token_ids", "supply_prefix"]


def item(message):
    """A message as the Responses API has it."""
    if isinstance(message["content"], str):
        return message
    parts = [
        {"type": "input_image", "image_url": url_of(part["name"]), "detail": "auto"} if part["type"] == "image"
        else {"type": "input_text", "text": part["text"]}
        for part in message["content"]
    ]
    return {"role": message["role"], "content": parts}


async def converse(variant, upstream, directory, conversation):
    from nemo_gym.config_types import BaseServerConfig
    from nemo_gym.server_utils import ServerClient
    from omegaconf import OmegaConf
    from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig

    supply = variant == "supply_prefix"
    here = {"host": "127.0.0.1", "port": 0}
    capture = {"enabled": True, "all_agents": True, "dir": directory} if supply else {"enabled": False}
    settings = OmegaConf.create({"token_id_capture": capture, "policy_model": {"responses_api_models": {"vllm_model": dict(here)}}})
    client = ServerClient(head_server_config=BaseServerConfig(**here), global_config_dict=settings)
    model = VLLMModel(
        config=VLLMModelConfig(
            **here,
            entrypoint="app.py",
            name="policy_model",
            base_url=f"{upstream}/v1",
            api_key="none",
            model="smollm2",
            return_token_id_information=True,
            supply_prefix_token_ids=supply,
            uses_reasoning_parser=False,
            extra_body={"logit_bias": BIASES},
        ),
        server_client=client,
    )
    async with served(model.setup_webserver()) as port, httpx.AsyncClient(timeout=300) as http:
        settings.policy_model.responses_api_models.vllm_model.port = port
        prefix = "/ng-rollout/one/training-token-capture" if supply else ""
        said = [item(message) for message in conversation["before"]]
        for more in (conversation["after"], []):
            body = {"input": said, "temperature": 0, "max_output_tokens": 8}
            answer = await http.post(f"http://127.0.0.1:{port}{prefix}/v1/responses", json=body)
            assert answer.status_code == 200, answer.text
            said = [*said, *answer.json()["output"], *(item(message) for message in more)]


async def main():
    from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig, set_global_aiohttp_client

    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
    version = f"nemo-gym {importlib.metadata.version('nemo-gym')}"
    lines = []
    for variant in VARIANTS:
        for name in NAMES:
            with tempfile.TemporaryDirectory() as files, tempfile.TemporaryDirectory() as directory:
                server = Server("--dtype", "float32", model=write(pathlib.Path(files), CASE))
                recorder = Between(server.url)
                try:
                    await converse(variant, recorder.url, directory, CASE["conversations"][name])
                finally:
                    recorder.shutdown()
                    server.stop()
            lines += [{"by": version, "variant": variant, "conversation": name, **call} for call in recorder.calls]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    # The images themselves lie in tests/golden/image_conversations.
    for name in SHARED["files"]:
        text = text.replace(url_of(name), f"image:{name}")
    (RECORDED / "nemo_gym_images.jsonl").write_text(text)


if __name__ == "__main__":
    asyncio.run(main())
