"""The manifest of deploy/kuberay: what KubeRay's definition of a RayService allows, with pods that Kubernetes knows.

The definition is recorded for the fields that the manifest uses, by tests/deploy/kuberay/record.py; tests/ray/test_service.py has
Ray read what is Ray's in it.
"""

import copy
import json
import pathlib
import re
import unittest

import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kuberay"
SCHEMA = json.loads((ROOT / "tests" / "deploy" / "kuberay" / "rayservices.schema.json").read_text())
VERSIONS = ["1.30", "1.33", "1.37"]
# Arguments of tito.ray.Replicas that are no flags.
OF_REPLICAS = {"model", "count", "cpus", "gpus", "strategy"}


def manifest():
    return yaml.safe_load((FOLDER / "ray-service.yaml").read_text())


def pods(service):
    cluster = service["spec"]["rayClusterConfig"]
    return [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def check(service):
    jsonschema.Draft202012Validator(SCHEMA).validate(service)
    for template in pods(service):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": service["metadata"], **template}
        for version in VERSIONS:
            kubernetes_validate.validate(pod, version, strict=True)


class KubeRay(unittest.TestCase):
    def test_it_is_valid_and_every_file_is_named(self):
        check(manifest())
        [resource] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
        written = {path.name for path in FOLDER.rglob("*.yaml")} - {"kustomization.yaml"}
        self.assertEqual(written, {resource})

    def test_what_nobody_knows_is_refused(self):
        places = [
            lambda service: service,
            lambda service: service["spec"],
            lambda service: service["spec"]["rayClusterConfig"],
            lambda service: service["spec"]["rayClusterConfig"]["headGroupSpec"],
            lambda service: service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0],
            lambda service: pods(service)[0]["spec"],
            lambda service: pods(service)[1]["spec"]["containers"][0],
        ]
        for number, place in enumerate(places):
            wrong = manifest()
            place(wrong)["noSuchField"] = "1"
            with self.subTest(number), self.assertRaises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
                check(wrong)
        for change in ({"minReplicas": "two"}, {"rayStartParams": {"num-cpus": 0}}, {"groupName": None}):
            wrong = manifest()
            wrong["spec"]["rayClusterConfig"]["workerGroupSpecs"][0].update(change)
            with self.subTest(change), self.assertRaises(jsonschema.ValidationError):
                check(wrong)

    def test_its_parts_agree(self):
        service = manifest()
        spec = service["spec"]
        [application] = yaml.safe_load(spec["serveConfigV2"])["applications"]
        arguments = application["args"]
        [group] = spec["rayClusterConfig"]["workerGroupSpecs"]
        sizes = [group[name] for name in ("replicas", "minReplicas", "maxReplicas")]
        fronts = {one["name"]: one["num_replicas"] for one in application["deployments"]}
        self.assertEqual(sizes + [fronts["tito"]], [arguments["count"]] * 4)
        head, worker = pods(service)
        [server] = worker["spec"]["containers"]
        self.assertEqual(str(arguments["cpus"]), server["resources"]["limits"]["cpu"])
        flags = (ROOT / "docs" / "flags.md").read_text()
        unknown = [name for name in arguments.keys() - OF_REPLICAS if f"`--{name.replace('_', '-')}" not in flags]
        self.assertEqual(unknown, [])
        pinned = re.search(r"^ray\[serve\]==(\S+)$", (ROOT / "tests" / "ray" / "requirements.txt").read_text(), re.MULTILINE)[1]
        self.assertEqual(spec["rayClusterConfig"]["rayVersion"], pinned)
        ports = {port["name"]: port["containerPort"] for port in head["spec"]["containers"][0]["ports"]}
        self.assertEqual(ports["serve"], yaml.safe_load(spec["serveConfigV2"])["http_options"]["port"])

    def test_the_patches_of_the_component_meet_what_is_there(self):
        [patch] = yaml.safe_load((FOLDER / "components" / "gpu" / "kustomization.yaml").read_text())["patches"]
        patched = copy.deepcopy(manifest())
        for step in yaml.safe_load(patch["patch"]):
            *path, last = [part.replace("~1", "/") for part in step["path"].split("/")[1:]]
            at = patched
            for part in path:
                at = at[int(part) if isinstance(at, list) else part]
            self.assertEqual(last in at, step["op"] == "replace", step["path"])
            at[last] = step["value"]
        check(patched)
        self.assertEqual(pods(patched)[1]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "1")


if __name__ == "__main__":
    unittest.main()
