"""`tito.ray:service`, by the file that KubeRay gives to Ray Serve: an application that starts its replicas itself."""

import concurrent.futures
import importlib

import pytest
import ray.serve.schema
import yaml
from conftest import FLAGS, REPOSITORY, Policy, held_port, poll
from ray import serve
from rollouts import Conversation

import tito.ray

MANIFEST = REPOSITORY / "deploy" / "kuberay" / "ray-service.yaml"


def application():
    """What stands in the manifest, by Ray's own classes, which refuse what they do not know."""
    text = yaml.safe_load(MANIFEST.read_text())["spec"]["serveConfigV2"]
    [application] = ray.serve.schema.ServeDeploySchema.model_validate(yaml.safe_load(text)).applications
    return application


def test_ray_reads_the_file_and_finds_what_it_names():
    named = application()
    module, attribute = named.import_path.split(":")
    built = getattr(importlib.import_module(module), attribute)(named.args)
    deployments = {built._bound_deployment.name: built._bound_deployment.num_replicas}
    for inner in built._bound_deployment.init_args:
        deployments[inner._bound_deployment.name] = inner._bound_deployment.num_replicas
    assert deployments == {one.name: one.num_replicas for one in named.deployments}
    with pytest.raises(ValueError, match="need count"):
        tito.ray.service({"model": "policy"})


def test_a_service_starts_its_replicas_and_updates_them_as_one(tmp_path):
    trainer = Policy(tmp_path)
    arguments = {**application().args, **FLAGS, "model": str(trainer.model), "cpus": 0.5, "strategy": "PACK", "check_seconds": 0.2}
    with held_port() as port:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        try:
            serve.run(tito.ray.service(arguments), name="tito")
            url = f"http://127.0.0.1:{port}"
            owner = serve.get_deployment_handle("replicas", "tito")
            directory = trainer.write("step-1", seed=1)
            updated = []

            def answered(turns):
                # In the middle of the conversation.
                if turns == 2 and not updated:
                    updated.append(owner.update_weights.remote(str(directory), "step-1"))

            conversations = [Conversation(lambda _: url, number, "session", answered) for number in range(4)]
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for done in [pool.submit(conversation.run) for conversation in conversations]:
                    assert done.result().outcomes() == ["exact"] * 3
            assert updated[0].result().weight_version == "step-1"
            for conversation in conversations:
                for turn in conversation.turns:
                    turn.check_weights(trainer.weights)
            states = owner.states_of_now.remote().result()
            assert [state.weight_version for state in states] == ["step-1"] * arguments["count"]
        finally:
            serve.shutdown()
    # The servers end with the service.
    poll("they have ended", lambda: not any(tito_runs(state.pid) for state in states))


def tito_runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
