"""Starts the server of the package tito-server, and asks its control plane.

    with tito.Server("Qwen/Qwen3-0.6B", max_model_len=4096, admin_port=0) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        server.admin.pause(mode="keep")

The server is the program `tito serve`; nothing of it is written once more here.
"""

from ._admin import Admin, Refused
from ._server import Server, StartError, program

__all__ = ["Admin", "Refused", "Server", "StartError", "program"]
