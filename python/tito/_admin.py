"""Asks the control plane over HTTP."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Any
from urllib.parse import urlencode

from ._calls import Calls


class Refused(RuntimeError):  # noqa: N818 (what the server did, as its answer says)
    """An answer that is an error: `status`, and what the server said."""

    def __init__(self, path: str, status: int, said: str) -> None:
        super().__init__(f"{path}: {status} {said}")
        self.path = path
        self.status = status
        self.said = said

    def __reduce__(self) -> tuple[type["Refused"], tuple[str, int, str]]:
        """For other processes."""
        return Refused, (self.path, self.status, self.said)


class Admin(Calls):
    """The control plane at an address. Each call waits until the server has done what it asks for."""

    def __init__(self, url: str, key: str = "") -> None:
        """Asks `url`, with a key where the server wants one."""
        self.url = url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # The server is not behind a proxy, whatever the environment says.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def _ask(
        self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | bytes | IO[bytes] | None
    ) -> Any:
        """What a call answers. Arguments that are None are not sent."""
        asked = {name: _word(value) for name, value in query.items() if value is not None}
        url = self.url + path + ("?" + urlencode(asked, doseq=True) if asked else "")
        headers, data = dict(self._headers), body
        if isinstance(body, Mapping):
            data = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
            headers["Content-Type"] = "application/json"
        elif body is not None:
            headers["Content-Type"] = "application/octet-stream"
        request = urllib.request.Request(url, data, headers, method=method)  # type: ignore[arg-type]
        try:
            with self._opener.open(request) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            raise Refused(path, error.code, error.read().decode(errors="replace")) from None
        return json.loads(text) if text else None


def _word(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
