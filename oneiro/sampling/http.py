"""HTTP requests that always end: each has a deadline, from connect to the last byte, and a bound on its reply."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from oneiro.runtime.errors import OneiroError

if TYPE_CHECKING:
    import httpx2

MAX_REPLY_BYTES = 256 << 20  # tokens and log-probabilities of a large group of long samples

T = TypeVar("T")


def run(function: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Call an async function and wait for it. It gets a thread and an event loop of its own, because the caller may
    have a running loop, as in a notebook. Whatever ends the wait, Ctrl-C included, cancels its requests.
    """
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal:
        return portal.call(function, *args)


def open_client(headers: dict[str, str] | None = None, *, proxies: bool) -> httpx2.AsyncClient:
    """A client, with the proxies of the environment or without."""
    import httpx2

    context = _tls_context()
    # No connection is kept for a second request: a server may close it at that very moment, which looks like a fault.
    # Replies come uncompressed, or a few bytes could grow without bound.
    try:
        return httpx2.AsyncClient(
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **(headers or {})},
            timeout=None,  # the deadline of `fetch` bounds connecting, sending and reading together
            limits=httpx2.Limits(max_keepalive_connections=0),
            verify=context,
            trust_env=proxies,
        )
    except (ImportError, ValueError) as error:
        raise OneiroError(f"the proxy settings of the environment cannot be used: {error}") from error


@cache
def _tls_context() -> ssl.SSLContext:
    """Made once: reading the certificates takes a tenth of a second."""
    import httpx2

    return httpx2.create_ssl_context()


async def fetch(
    client: httpx2.AsyncClient, url: str, body: Any, seconds: float, max_bytes: int
) -> tuple[httpx2.Response, bytes]:
    """POST `body` as JSON, or GET where there is none; a `ServerFault` where no whole reply comes."""
    import httpx2

    payload = None if body is None else json.dumps(body).encode()
    content = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async with client.stream("GET" if body is None else "POST", url, content=payload) as response:
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > max_bytes:
                        raise ServerFault(f"the reply is longer than {max_bytes / 2**20:.3g} MiB")
    except TimeoutError as error:
        raise ServerFault(f"no whole reply within {seconds:.1f} s") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ServerFault(f"connection failed: {_first_cause(error)}") from error
    return response, bytes(content)


def _first_cause(error: BaseException) -> str:
    """`Connection refused`, of which the outermost error only says that all attempts failed."""
    while (
        cause := error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
    ):
        error = cause
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def ask(url: str, body: Any = None, seconds: float = 60.0, max_bytes: int = MAX_REPLY_BYTES) -> Any:
    """The JSON that a machine of ours answers, None where the reply is empty. It is reached without a proxy. Anything
    else than a whole, well-formed reply with status 200 is a `ServerFault`.
    """

    async def one_request() -> tuple[httpx2.Response, bytes]:
        async with open_client(proxies=False) as client:
            return await fetch(client, url, body, seconds, max_bytes)

    response, content = run(one_request)
    if response.status_code != 200:
        raise ServerFault(f"HTTP {response.status_code}: {content[:200].decode('utf-8', 'replace')}")
    if not content.strip():
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ServerFault("the reply is no JSON") from error


class ServerFault(Exception):
    """A request went wrong in a way that another attempt may mend."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
