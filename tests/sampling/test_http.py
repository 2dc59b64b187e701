"""One request to a rollout server: whole, well-formed and in time, or a fault that says what was wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from oneiro.sampling.http import ServerFault, ask

Answer = Callable[[BaseHTTPRequestHandler], object]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(OSError):
                answer(self)

        do_POST = do_CONNECT = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()


def say(body: bytes, status: str = "200 OK") -> Answer:
    return lambda handler: handler.wfile.write(f"HTTP/1.0 {status}\r\n\r\n".encode() + body)


def echo(handler: BaseHTTPRequestHandler) -> None:
    length = int(handler.headers.get("Content-Length", 0))
    told = {"path": handler.path, "method": handler.command, "body": handler.rfile.read(length).decode()}
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(told).encode())


def test_a_body_is_posted_and_without_one_it_is_a_get() -> None:
    with serving(echo) as url:
        assert ask(f"{url}/a?b=c", {"d": 1}) == {"path": "/a?b=c", "method": "POST", "body": '{"d": 1}'}
        assert ask(url) == {"path": "/", "method": "GET", "body": ""}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (say(b"{}", "500 Oh"), r"^HTTP 500: \{\}$"),
        (say(b"{}", "201 Created"), "^HTTP 201"),
        (say(b"{"), "^the reply is no JSON$"),
        (say(b"[" * 100_000), "^the reply is no JSON$"),
        (say(b'"' + b"a" * 2_000_000 + b'"'), "^the reply is longer than 1 MiB$"),
    ],
)
def test_anything_but_a_whole_reply_is_a_fault(answer: Answer, said: str) -> None:
    with serving(answer) as url, pytest.raises(ServerFault, match=said):
        ask(url, max_bytes=1 << 20)


def test_a_reply_may_be_empty_and_as_long_as_allowed() -> None:
    with serving(say(b" \n")) as url:
        assert ask(url) is None
    with serving(say(b'"abcd"')) as url:
        assert ask(url, max_bytes=6) == "abcd"
        with pytest.raises(ServerFault, match="longer"):
            ask(url, max_bytes=5)


def test_a_reply_that_stops_halfway_is_not_taken_for_the_whole() -> None:
    """What has come by then is JSON: only the time says that more was to come."""
    ended = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
        while not ended.wait(0.05):
            handler.wfile.write(b"1")

    with serving(drip) as url:
        try:
            with pytest.raises(ServerFault, match=r"^no whole reply within 0\.5 s$"):
                ask(url, seconds=0.5)
        finally:
            ended.set()


def test_nobody_there_is_a_fault() -> None:
    with serving(echo) as url:
        pass
    with pytest.raises(ServerFault, match="refused"):
        ask(url)
