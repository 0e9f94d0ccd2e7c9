"""The front of replicas by Ray Serve: its own consistent hash takes each session to one of them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ._replicas import Replicas
from ._state import State

if TYPE_CHECKING:
    import aiohttp
    from starlette.requests import Request
    from starlette.responses import Response

# Ray's own, by the header `X-Session-ID`; requests without one go anywhere.
ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
CONNECT_SECONDS = 30
# As long as a header may be that tito sends or takes.
HEADER_BYTES = 1 << 20
# Of a connection, and not of what it carries.
OF_CONNECTIONS = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
# What the client of the front says, or nobody.
UNSAID = ["Accept", "Accept-Encoding", "Content-Type", "User-Agent"]


def application(replicas: Replicas, *, name: str = "tito", max_ongoing_requests: int = 1000) -> Any:
    """What `serve.run` puts in front of replicas: requests and answers pass it byte for byte, streams as they come.

    Ray Serve takes every request with the same `X-Session-ID` to the same replica, for as long as that is ready. Meanwhile
    another one answers.

    Args:
        replicas: The replicas. They are no part of the application, and do not end with it.
        name: What Ray Serve calls the deployment.
        max_ongoing_requests: How many requests a replica has at once before others wait in Ray Serve.

    """
    return deployed(len(replicas), name, max_ongoing_requests).bind(replicas)


def deployed(count: int, name: str = "tito", max_ongoing_requests: int = 1000) -> Any:
    """The deployment of the front of as many replicas."""
    from ray import serve
    from ray.serve.config import RequestRouterConfig

    # A session that its replica has no place for waits: another replica does not know it.
    router = RequestRouterConfig(request_router_class=ROUTER, request_router_kwargs={"num_fallback_replicas": 0})
    return serve.deployment(
        name=name,
        num_replicas=count,
        max_ongoing_requests=max_ongoing_requests,
        ray_actor_options={"num_cpus": 0},
        request_router_config=router,
    )(Front)


class Front:
    """Passes what it gets to the replica whose number is its own rank."""

    def __init__(self, replicas: Any) -> None:
        """In front of these, which are `Replicas`, or the handle of a deployment that has them."""
        from ray import serve

        asked = replicas.states_of_now
        self._states_of_now: Callable[[], Awaitable[list[State]]] = asked if isinstance(replicas, Replicas) else asked.remote
        self._number = int(serve.get_replica_context().rank.rank)
        self._states: list[State] = []
        self._http: aiohttp.ClientSession | None = None

    async def __call__(self, request: "Request") -> "Response":
        """The answer of a replica, or 503 with the reason why there is none."""
        import aiohttp

        body = await request.body()
        if not self._states or self._states[self._number].url is None:
            await self._look()
        tried: dict[str, str] = {}
        # An address that was known is looked up once more, as a replica that was started again has another one.
        for _ in range(2):
            for state in self._at_hand():
                url = state.url or ""
                if url in tried:
                    continue
                try:
                    return _passed(await self._ask(url, request, body))
                except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                    tried[url] = f"replica {state.number}: {error}"
                except aiohttp.ClientError as error:
                    # It may have begun to answer: whether it is asked again is the client's decision.
                    said = f"replica {state.number} ended before it answered ({error or type(error).__name__})"
                    return _unavailable(f"{said}; the request may be sent again")
            await self._look()
        reasons = [f"replica {state.number}: {state.reason or state.state}" for state in self._states if not state.url]
        reasons += tried.values()
        return _unavailable(f"no replica takes requests; the request may be sent again later. {'; '.join(reasons)}")

    async def _look(self) -> None:
        self._states = await self._states_of_now()

    def _at_hand(self) -> list[State]:
        """Those that are ready, the own one first."""
        order = self._states[self._number :] + self._states[: self._number]
        return [state for state in order if state.url]

    async def _ask(self, url: str, request: "Request", body: bytes) -> "aiohttp.ClientResponse":
        import aiohttp
        import yarl

        if self._http is None:
            self._http = aiohttp.ClientSession(
                # A connection that a replica closes while it is idle would look like a replica that has ended.
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=UNSAID,
                max_line_size=HEADER_BYTES,
                max_field_size=HEADER_BYTES,
            )
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in _carried(request.headers.raw)]
        path = request.scope.get("raw_path") or request.scope["path"].encode()
        path = path.removeprefix(request.scope.get("root_path", "").encode())
        query = request.scope.get("query_string", b"")
        whole = url + path.decode("latin-1") + ("?" + query.decode("latin-1") if query else "")
        where = yarl.URL(whole, encoded=True)
        return await self._http.request(
            request.method, where, data=body or None, headers=headers, allow_redirects=False
        )


def _carried(headers: Any) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in OF_CONNECTIONS]


def _passed(answer: "aiohttp.ClientResponse") -> "Response":
    from starlette.responses import StreamingResponse

    async def parts() -> AsyncIterator[bytes]:
        # What ends the answer of the replica early ends that of the front early, and a client that leaves ends both.
        try:
            async for part in answer.content.iter_any():
                yield part
        finally:
            answer.close()

    response = StreamingResponse(parts(), answer.status)
    response.raw_headers = _carried((name.lower(), value) for name, value in answer.raw_headers)
    return response


def _unavailable(message: str) -> "Response":
    from starlette.responses import JSONResponse

    status = HTTPStatus.SERVICE_UNAVAILABLE
    error = {"message": message, "type": "ServiceUnavailableError", "param": None, "code": status.value}
    return JSONResponse({"error": error}, status.value, {"Retry-After": "1"})
