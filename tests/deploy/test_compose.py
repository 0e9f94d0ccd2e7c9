"""deploy/compose and what it mounts: a file of Compose, whose services name each other, their files, and this server rightly."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

import compose_spec
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "deploy" / "compose"
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
# As GRACE of src/server/ports.rs, once for the engine and once for connections.
GRACE_SECONDS = 5


def project():
    """The file as Compose sees it where nothing is set but what has to be."""
    text = (COMPOSE / "compose.yaml").read_text()
    return yaml.safe_load(VARIABLE.sub(lambda found: found[3] if found[2] == "-" else "set", text))


def read(text):
    """By the model of Compose's specification."""
    project = compose_spec.PyCompose.from_json(json.dumps(text))
    project.validate()
    return project


class Compose(unittest.TestCase):
    def setUp(self):
        self.services = project()["services"]
        self.replicas = [name for name in self.services if re.fullmatch(r"tito-\d", name)]

    def test_it_is_a_file_of_compose(self):
        self.assertEqual(set(read(project()).services), set(self.services))

    def test_what_compose_does_not_know_is_an_error(self):
        for name, value in [("read_never", True), ("stop_grace_period", "soon")]:
            wrong = project()
            wrong["services"]["redis"][name] = value
            with self.subTest(name), self.assertRaises(Exception):
                read(wrong)

    def test_services_name_each_other(self):
        router = (COMPOSE / "haproxy.cfg").read_text()
        self.assertEqual(re.findall(r"^    server \S+ (\S+)$", router, re.MULTILINE), [f"{name}:8000" for name in self.replicas])
        prometheus = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
        [job] = prometheus["scrape_configs"]
        self.assertEqual(job["static_configs"], [{"targets": [f"{name}:8000" for name in self.replicas]}])
        self.assertEqual(len(self.replicas), 3)
        [source] = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
        self.assertEqual(source["url"], "http://prometheus:9090")
        for service in self.services.values():
            self.assertLessEqual(set(service.get("depends_on", {})), set(self.services))

    def test_what_is_mounted_is_there_and_where_it_is_looked_for(self):
        mounted = {}
        for service in self.services.values():
            for volume in service.get("volumes", []):
                source, target, *_ = volume.split(":")
                if source.startswith("."):
                    self.assertTrue((COMPOSE / source).exists(), source)
                    mounted[target] = (COMPOSE / source).resolve()
        for file in yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["rule_files"]:
            self.assertIn(file, mounted)
        [provider] = yaml.safe_load((ROOT / "deploy/grafana/provisioning/dashboards/tito.yaml").read_text())["providers"]
        boards = [path for target, path in mounted.items() if target.startswith(provider["options"]["path"])]
        self.assertEqual(boards, [ROOT / "deploy/grafana/tito.json"])

    def test_flags_and_paths_are_this_servers(self):
        documented = (ROOT / "docs" / "flags.md").read_text()
        for name in self.replicas:
            for argument in self.services[name]["command"][1:]:
                self.assertRegex(documented, rf"`{re.escape(argument.split('=')[0])}\b", argument)
        [path] = re.findall(r"option httpchk GET (\S+)", (COMPOSE / "haproxy.cfg").read_text())
        self.assertIn(path, json.loads((ROOT / "openapi" / "openapi.json").read_text())["paths"])

    def test_keys_that_nobody_set_are_not_set(self):
        for name in self.replicas:
            given = self.services[name]["environment"]
            self.assertEqual({key for key, value in given.items() if value is None}, {"VLLM_API_KEY", "HF_TOKEN"})
            self.assertNotIn("", given.values())

    def test_a_replica_gets_the_time_that_it_takes_to_stop(self):
        for name in self.replicas:
            flags = " ".join(self.services[name]["command"])
            seconds = {flag: int(value) for flag, value in re.findall(r"--(shutdown-\w+)=(\d+)", flags)}
            taken = seconds["shutdown-delay"] + seconds["shutdown-timeout"] + 2 * GRACE_SECONDS
            self.assertGreater(int(self.services[name]["stop_grace_period"].removesuffix("s")), taken)
            # The router has to notice within the delay.
            router = (COMPOSE / "haproxy.cfg").read_text()
            [(every, falls)] = re.findall(r"check inter (\d+)ms fall (\d+)", router)
            self.assertGreater(1000 * seconds["shutdown-delay"], 5 * int(every) * int(falls))

    def test_only_what_is_asked_by_people_is_reached_from_outside(self):
        published = {name: service["ports"] for name, service in self.services.items() if "ports" in service}
        self.assertEqual(set(published), {"router", "prometheus", "grafana"})
        for ports in published.values():
            self.assertTrue(all(port.startswith("127.0.0.1:") for port in ports), ports)

    def test_haproxy_reads_its_file(self):
        program = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
        if program is None:
            self.skipTest("haproxy is not installed; it did not read its file")
        done = subprocess.run([program, "-c", "-f", COMPOSE / "haproxy.cfg"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
