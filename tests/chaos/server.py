"""A server that means no good."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

KEY = "sk-chaos-3f/9+Zq==secret"
GOOD = "<think><observation>a</observation><prediction>b</prediction></think><answer>Up</answer>"
Answer = Callable[[BaseHTTPRequestHandler], None]


def send(handler: BaseHTTPRequestHandler, body: Any, status: int = 200) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def say(text: str, **more: Any) -> Answer:
    choice = {"message": {"content": text}, "finish_reason": "stop", **more}
    return lambda handler: send(handler, {"choices": [choice]})


def fail(status: int, text: str) -> Answer:
    return lambda handler: send(handler, {"error": {"message": text}}, status)


def raw(data: bytes) -> Answer:
    return lambda handler: send(handler, data)


def flood(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
    for _ in range(1000):
        handler.wfile.write(b" " * 65536)


def drip(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
    for _ in range(100):
        handler.wfile.write(b" ")
        time.sleep(0.1)


LONG = b"1" + b"0" * 400
ANSWERS: dict[str, Answer] = {
    "good": say(GOOD),
    "echoes the key": say(GOOD + KEY),
    "echoes the key and tokens": say(GOOD + KEY, token_ids=[1], logprobs={"content": [{"logprob": -1}]}),
    "echoes the key in thoughts": say(GOOD, message={"content": GOOD, "reasoning_content": f"key {KEY}"}),
    "echoes the key in a refusal": fail(401, f"wrong key {KEY}"),
    "echoes the key in an error": fail(500, "x" * 290 + KEY),
    "echoes the key in garbage": raw(f"<html>{KEY}".encode()),
    "terminal codes": say("\x1b]0;owned\x07\x1b[2J" + GOOD),
    "terminal codes in an error": fail(500, "\x1b]0;owned\x07\x1b[2J"),
    "terminal codes in a refusal": fail(403, "\x1b[2J\x9b31m"),
    "half a character": raw(b'{"choices": [{"message": {"content": "\\ud800"}, "finish_reason": "stop"}]}'),
    "a long number": raw(
        b'{"choices": [{"message": {"content": ""}, "logprobs": {"content": [{"logprob": -%s}]}}]}' % LONG
    ),
    "nested": raw(b"[" * 100_000),
    "no JSON": raw(b"\xff\xfe\x00"),
    "nothing": raw(b""),
    "floods": flood,
    "drips": drip,
    "stalls": lambda handler: time.sleep(5),
    "hangs up": lambda handler: handler.connection.close(),
}


class Host:
    """One kind of answer, to everybody."""

    def __init__(self, name: str) -> None:
        answer = ANSWERS[name]

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                with suppress(OSError, ValueError):
                    answer(self)

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *args: None  # type: ignore[method-assign]
        self.address = f"http://127.0.0.1:{self.http.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.http.shutdown()
        self.http.server_close()
