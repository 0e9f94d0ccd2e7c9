"""The manifests of deploy/kubernetes: valid for the versions of Kubernetes that are in use, and true of this server."""

import json
import pathlib
import re
import unittest

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
VERSIONS = ["1.30", "1.33", "1.37"]
# What the engine, and then connections, may take once --shutdown-timeout is over: GRACE of src/server/ports.rs.
GRACE_SECONDS = 5
# Described by what the cluster installs, not by Kubernetes.
CUSTOM = {"PodMonitor"}


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def manifests():
    """Each manifest that some kustomization names, with its file."""
    found = []
    for kustomization in sorted(MANIFESTS.rglob("kustomization.yaml")):
        for document in documents(kustomization):
            for resource in document.get("resources", []):
                path = kustomization.parent / resource
                found += [(path, manifest) for manifest in documents(path)]
    return found


def of_kind(kind):
    return [manifest for _, manifest in manifests() if manifest["kind"] == kind]


class Kubernetes(unittest.TestCase):
    def setUp(self):
        [self.deployment] = of_kind("Deployment")
        self.pod = self.deployment["spec"]["template"]
        [self.container] = self.pod["spec"]["containers"]

    def test_every_file_is_named_and_valid(self):
        named = {path for path, _ in manifests()}
        written = {path for path in MANIFESTS.rglob("*.yaml") if path.name != "kustomization.yaml"}
        self.assertEqual(named, written)
        for path, manifest in manifests():
            if manifest["kind"] not in CUSTOM:
                for version in VERSIONS:
                    with self.subTest(path=path.name, version=version):
                        kubernetes_validate.validate(manifest, version, strict=True)

    def test_an_unknown_field_is_an_error(self):
        wrong = json.loads(json.dumps(self.deployment))
        wrong["spec"]["template"]["spec"]["containers"][0]["readOnlyRoot"] = True
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)

    def test_everything_selects_the_pods(self):
        labels = self.pod["metadata"]["labels"]
        selectors = [manifest["spec"]["selector"] for _, manifest in manifests()]
        chosen = [selector.get("matchLabels", selector) for selector in selectors]
        self.assertEqual(chosen, [labels] * len(chosen))
        ports = {port["name"] for port in self.container["ports"]}
        for service in of_kind("Service"):
            self.assertLessEqual({port["targetPort"] for port in service["spec"]["ports"]}, ports)
        for monitor in of_kind("PodMonitor"):
            self.assertLessEqual({endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}, ports)

    def test_flags_and_paths_are_this_servers(self):
        flags = (ROOT / "docs" / "flags.md").read_text()
        for argument in self.container["args"][1:]:
            flag = argument.split("=")[0]
            self.assertRegex(flags, re.escape(f"`{flag}`").replace("`$", ""), flag)
        document = json.loads((ROOT / "openapi" / "openapi.json").read_text())
        probes = [self.container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
        self.assertEqual(probes, ["/readyz", "/livez", "/readyz"])
        self.assertLessEqual(set(probes), set(document["paths"]))

    def test_a_pod_is_given_the_time_that_its_server_takes(self):
        seconds = {flag: int(value) for flag, value in re.findall(r"--(shutdown-\w+)=(\d+)", " ".join(self.container["args"]))}
        taken = seconds["shutdown-delay"] + seconds["shutdown-timeout"] + 2 * GRACE_SECONDS
        self.assertGreater(self.pod["spec"]["terminationGracePeriodSeconds"], taken)
        # Kubernetes has to see that it is not ready any more, and to tell every node, before it takes no more requests.
        probe = self.container["readinessProbe"]
        self.assertGreater(seconds["shutdown-delay"], probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"])

    def test_what_it_may_do_is_little(self):
        context = self.container["securityContext"]
        self.assertEqual((context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]), (True, False))
        self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
        user = self.pod["spec"]["securityContext"]["runAsUser"]
        self.assertIn(f"--uid {user} ", (ROOT / "Dockerfile").read_text())
        mounted = {mount["mountPath"] for mount in self.container["volumeMounts"]}
        self.assertEqual(mounted, {"/home/tito/.cache/huggingface", "/tmp"})


if __name__ == "__main__":
    unittest.main()
