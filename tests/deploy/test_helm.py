"""The chart of deploy/helm: what Helm makes of it is what deploy/kubernetes has, and valid, whatever values are set."""

import pathlib
import re
import unittest

import helm_python
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "tito"
MANIFESTS = ROOT / "deploy" / "kubernetes"
VERSIONS = ["1.30", "1.33", "1.37"]
# Each is not what it is by default.
OTHERS = {
    "model": "a/b: c",
    "replicas": 5,
    "image": {"repository": "registry.example/tito", "tag": "1", "pullPolicy": "Always"},
    "flags": ["--max-model-len=4096", '--override-generation-config={"temperature": 1}'],
    "secret": "keys",
    "shutdown": {"delay": 20, "timeout": 100},
    "gpus": 2,
    "resources": {"limits": {"memory": "64Gi"}},
    "hubClaim": "models",
    "service": {"type": "NodePort"},
    "podMonitor": True,
    "nodeSelector": {"gpu": "h100"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
}


def rendered(**values):
    """Each manifest of a release that is called `tito`, by kind and name."""
    files = helm_python.Chart.load(str(CHART)).render(values, name="tito")
    documents = [document for text in files.values() for document in yaml.safe_load_all(text) if document]
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def of_kustomize(*folders):
    files = [file for folder in (".", *folders) for file in sorted((MANIFESTS / folder).glob("*.yaml"))]
    documents = [document for file in files if file.name != "kustomization.yaml" for document in yaml.safe_load_all(file.read_text())]
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def without_labels(manifest):
    """A manifest without what says to which release it belongs."""
    if isinstance(manifest, dict):
        kept = {key: without_labels(value) for key, value in manifest.items() if key not in ("labels", "matchLabels", "selector")}
        return {key: value for key, value in kept.items() if value != {} or key == "emptyDir"}
    return [without_labels(one) for one in manifest] if isinstance(manifest, list) else manifest


class Helm(unittest.TestCase):
    def test_helm_finds_nothing_to_say(self):
        report = helm_python.lint(str(CHART), strict=True)
        # 1 is advice: that a chart could have an icon.
        self.assertEqual([message for message in report["messages"] if message["severity"] > 1], [])
        self.assertEqual(report["errors"], [])

    def test_with_its_own_values_it_is_what_kustomize_has(self):
        made, expected = rendered(podMonitor=True), of_kustomize("components/pod-monitor")
        [container] = made["Deployment", "tito"]["spec"]["template"]["spec"]["containers"]
        version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
        self.assertEqual(container["image"], f"tito:{version}")
        container["image"] = "tito"
        self.assertEqual({key: without_labels(one) for key, one in made.items()}, {key: without_labels(one) for key, one in expected.items()})
        self.assertNotIn(("PodMonitor", "tito"), rendered())

    def test_kubernetes_knows_all_of_it_and_everything_selects_the_pods(self):
        for values in ({}, OTHERS):
            made = rendered(**values)
            labels = made["Deployment", "tito"]["spec"]["template"]["metadata"]["labels"]
            for (kind, name), manifest in made.items():
                selector = manifest["spec"]["selector"]
                self.assertEqual(selector.get("matchLabels", selector), labels)
                for version in VERSIONS if kind != "PodMonitor" else []:
                    with self.subTest(kind=kind, name=name, version=version):
                        kubernetes_validate.validate(manifest, version, strict=True)

    def test_every_value_has_its_effect(self):
        defaults = yaml.safe_load((CHART / "values.yaml").read_text())
        self.assertEqual(set(defaults), set(OTHERS))
        for name, value in OTHERS.items():
            self.assertNotEqual(rendered(**{name: value}), rendered(), name)
        pod = rendered(**OTHERS)["Deployment", "tito"]["spec"]["template"]["spec"]
        [container] = pod["containers"]
        self.assertEqual(container["args"][0], OTHERS["model"])
        self.assertEqual(container["args"][-2:], OTHERS["flags"])
        self.assertEqual(container["resources"]["limits"], {"memory": "64Gi", "nvidia.com/gpu": "2"})
        # As tests/deploy/test_kubernetes.py has it for the manifests.
        self.assertGreater(pod["terminationGracePeriodSeconds"], 20 + 100 + 2 * 5)

    def test_what_is_no_value_is_refused(self):
        for wrong in ({"replica": 2}, {"replicas": "2"}, {"shutdown": {"delays": 1}}, {"flags": "--a"}, {"service": {"type": "None"}}):
            with self.subTest(wrong), self.assertRaises(helm_python.HelmValuesError):
                rendered(**wrong)

    def test_it_is_of_this_version(self):
        version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))


if __name__ == "__main__":
    unittest.main()
