"""An OpenAI-compatible server that always makes the same moves: the reply to turn N is the N-th of them."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def serve(moves: list[str]) -> str:
    """Its address; it ends with this process."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            self.say({"object": "list", "data": [{"id": "mover", "object": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            turn = sum(message["role"] == "assistant" for message in body["messages"])
            message = {"role": "assistant", "content": moves[turn % len(moves)]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            head = {"id": "1", "object": "chat.completion", "created": int(time.time()), "model": "mover"}
            if not body.get("stream"):
                return self.say({**head, "choices": [choice], "usage": usage})
            head["object"] = "chat.completion.chunk"
            parts = [
                {**head, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
                {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage},
            ]
            lines = [f"data: {json.dumps(part)}\n\n" for part in parts]
            self.send("".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")

        def say(self, reply: dict[str, Any]) -> None:
            self.send(json.dumps(reply).encode(), "application/json")

        def send(self, data: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
