"""Routers as people run them: how each is started in front of replicas, and what can be set in it.

TITO_TEST_ROUTERS is a Python environment with the packages of routers.txt; nginx and haproxy are the system's.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import time
import urllib.request

from conftest import free_port

START_SECONDS = 600
SESSION = "X-Session-ID"


@dataclasses.dataclass(frozen=True)
class Setting:
    """A router with what is set in it: `say` makes its files and its command."""

    name: str
    program: str
    how: str
    say: object

    def path(self):
        """Where the program is, or `None`."""
        packaged = pathlib.Path(os.environ.get("TITO_TEST_ROUTERS", "/nowhere"), "bin", self.program)
        return str(packaged) if packaged.exists() else shutil.which(self.program, path=os.environ["PATH"] + ":/usr/sbin")


def nginx(balance):
    def say(directory, port, workers):
        servers = "".join(f"server 127.0.0.1:{worker} max_fails=1 fail_timeout=1s;\n" for worker in workers)
        (directory / "nginx.conf").write_text(f"""
daemon off; master_process off; error_log stderr; pid {directory}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
    client_max_body_size 64m;
    upstream tito {{ {balance} {servers} }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://tito; proxy_http_version 1.1; proxy_buffering off; proxy_read_timeout 1h; }}
    }}
}}
""")
        return ["-p", str(directory), "-c", str(directory / "nginx.conf")]

    return say


def haproxy(balance):
    def say(directory, port, workers):
        servers = "".join(f"    server s{worker} 127.0.0.1:{worker} check inter 200ms\n" for worker in workers)
        (directory / "haproxy.cfg").write_text(f"""
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    option redispatch
frontend all
    bind 127.0.0.1:{port}
    default_backend tito
backend tito
    balance {balance}
    hash-type consistent
    option httpchk GET /health
{servers}""")
        return ["-f", str(directory / "haproxy.cfg")]

    return say


def envoy(policy, hashed):
    def say(directory, port, workers):
        endpoint = "- endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}".format
        endpoints = "\n".join(" " * 10 + endpoint(worker) for worker in workers)
        (directory / "envoy.yaml").write_text(f"""
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: tito
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
          route_config:
            virtual_hosts:
            - name: tito
              domains: ["*"]
              routes:
              - match: {{prefix: "/"}}
                route: {{cluster: tito, timeout: 0s, retry_policy: {{retry_on: connect-failure, num_retries: 2}}{hashed}}}
  clusters:
  - name: tito
    connect_timeout: 5s
    lb_policy: {policy}
    health_checks:
    - {{timeout: 1s, interval: 0.2s, unhealthy_threshold: 1, healthy_threshold: 1, http_health_check: {{path: /health}}}}
    load_assignment:
      cluster_name: tito
      endpoints:
      - lb_endpoints:
{endpoints}
""")
        return ["-c", str(directory / "envoy.yaml"), "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"]

    return say


def traefik(directory, port, workers):
    servers = "".join(f"          - url: http://127.0.0.1:{worker}\n" for worker in workers)
    (directory / "services.yaml").write_text(f"""
http:
  routers:
    all: {{rule: "PathPrefix(`/`)", service: tito}}
  services:
    tito:
      loadBalancer:
        healthCheck: {{path: /health, interval: 200ms, timeout: 1s}}
        servers:
{servers}""")
    return [
        f"--entrypoints.web.address=127.0.0.1:{port}",
        f"--providers.file.filename={directory}/services.yaml",
        "--global.sendAnonymousUsage=false",
        "--global.checkNewVersion=false",
    ]


def vllm_router(*flags):
    def say(_, port, workers):
        urls = [f"http://127.0.0.1:{worker}" for worker in workers]
        health = ["--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--health-success-threshold", "1"]
        ports = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
        return [*ports, "--worker-urls", *urls, *health, *flags]

    return say


def smg(*flags):
    def say(*asked):
        return ["launch", *vllm_router(*flags)(*asked)]

    return say


HASHED = ', hash_policy: [{header: {header_name: "x-session-id"}}]'
SETTINGS = [
    Setting("nginx", "nginx", "round robin", nginx("")),
    Setting("nginx", "nginx", "`hash $http_x_session_id consistent`", nginx("hash $http_x_session_id consistent;")),
    Setting("haproxy", "haproxy", "`balance roundrobin`", haproxy("roundrobin")),
    Setting("haproxy", "haproxy", "`balance hdr(x-session-id)`", haproxy("hdr(x-session-id)")),
    Setting("Envoy", "envoy", "`ROUND_ROBIN`", envoy("ROUND_ROBIN", "")),
    Setting("Envoy", "envoy", "`RING_HASH` of the header", envoy("RING_HASH", HASHED)),
    Setting("Traefik", "traefik", "round robin", traefik),
    Setting("vllm-router", "vllm-router", "`--policy round_robin`", vllm_router("--policy", "round_robin")),
    Setting("vllm-router", "vllm-router", "`--policy consistent_hash`", vllm_router("--policy", "consistent_hash")),
    Setting("smg", "smg", "`--policy round_robin`", smg("--policy", "round_robin")),
    Setting("smg", "smg", "the same with `--disable-retries`", smg("--policy", "round_robin", "--disable-retries")),
]


@contextlib.contextmanager
def running(setting, directory, workers):
    """The address of a router in front of replicas at these ports."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = directory / "router.log"
    with log.open("wb") as out:
        command = [setting.path(), *setting.say(directory, port, workers)]
        # Its process group, as some of them are several processes.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(url):
            assert process.poll() is None, f"{setting.name} ended with {process.returncode}:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{setting.name} does not answer:\n{log.read_text()}"
            time.sleep(0.05)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(url):
    """Whether a replica answers behind the router."""
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as response:
            return response.status == 200
    except OSError:
        return False
