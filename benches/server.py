"""A server that a bench starts and asks."""

import json
import subprocess
import sys
import time
import urllib.request


class Server:
    def __init__(self, tito, model, port, *flags):
        self.url = f"http://127.0.0.1:{port}"
        command = [tito, "serve", str(model), "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "base"]
        command += ["--engine", "native", "--max-num-seqs", "64", "--admin-on-main-port", "--insecure-admin", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.asked = 0
        while self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/health")
                return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"the server ended: {command}")

    def post(self, path, **body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as response:
            return response.read()
