"""One HTTP request to a machine of ours: bounded in time from connect to the last byte, and in size."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import urllib.parse
from contextlib import suppress
from typing import Any

from oneiro.sampling.completion import ServerFault
from oneiro.sampling.server import read_reply

LONGEST = 256 << 20


def ask(url: str, body: Any = None, seconds: float = 60.0, longest: int = LONGEST) -> Any:
    """POST `body` as JSON, or GET where there is none; returns the reply's JSON, None where it is empty. Anything else
    than a whole, well-formed reply with status 200 is a `ServerFault`.
    """
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(str(parts.hostname), parts.port, timeout=seconds)
    late = threading.Event()

    def cut() -> None:
        late.set()
        if connection.sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    # Socket timeouts restart with every byte; the timer bounds the request as a whole.
    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request("GET" if body is None else "POST", target, payload, headers)
        response = connection.getresponse()
        found = read_reply(response, longest, late)
    except (OSError, http.client.HTTPException) as error:
        reason = f"no reply within {seconds:.1f} s" if late.is_set() or isinstance(error, TimeoutError) else error
        raise ServerFault(str(reason) or type(error).__name__) from error
    finally:
        timer.cancel()
        connection.close()
    if late.is_set():
        raise ServerFault(f"no whole reply within {seconds:.1f} s")
    if len(found) > longest:
        raise ServerFault(f"the reply is longer than {longest >> 20} MiB")
    if response.status != 200:
        raise ServerFault(f"HTTP {response.status}: {found[:200].decode('utf-8', 'replace')}")
    if not found.strip():
        return None
    try:
        return json.loads(found)
    except (ValueError, RecursionError) as error:
        raise ServerFault("the reply is no JSON") from error
