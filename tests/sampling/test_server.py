"""The client against a real HTTP server that fails, stalls, limits and lies."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest
from pydantic import ValidationError

from oneiro.runtime.errors import Notice, OneiroError
from oneiro.sampling import server as server_module
from oneiro.sampling.server import HIDDEN, Server, ServerConfig

pytestmark = pytest.mark.filterwarnings("ignore::oneiro.runtime.errors.Notice")


class Host:
    """A local server whose answers a test writes; it remembers every request body, header and time of arrival.

    `over` is set when the test ends. An answer that waits for it is one that never comes: a client that returns did
    not wait for it.
    """

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any], BaseHTTPRequestHandler], None] = echo
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.over = threading.Event()
        lock = threading.Lock()
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    host.bodies.append(body | {"path": self.path})
                    host.headers.append(dict(self.headers))
                    host.times.append(time.monotonic())
                with contextlib.suppress(OSError):
                    host.answer(body, self)

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.http.shutdown()
        self.http.server_close()

    def client(self, **settings: Any) -> Server:
        settings = {"model": "m", "timeout_s": 60.0, **settings}
        return Server(ServerConfig(base_url=f"http://127.0.0.1:{self.http.server_port}/v1", **settings))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(server_module, "FIRST_WAIT_S", 0.02)
    with Host() as host:
        yield host


def send(handler: BaseHTTPRequestHandler, data: Any, status: int = 200, **headers: str) -> None:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def choice(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}, "finish_reason": "stop", **more}


def echo(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
    said = body["messages"][-1]["content"]
    send(handler, {"choices": [choice(f"{said} {k}") for k in range(body["n"])], "usage": {"completion_tokens": 3}})


def say(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_replies_come_in_the_order_of_the_conversations_and_n_each(host: Host) -> None:
    replies = host.client(concurrency=8).chat([say(f"hello {i}") for i in range(20)], n=2)
    assert [[reply.text for reply in group] for group in replies] == [
        [f"hello {i} 0", f"hello {i} 1"] for i in range(20)
    ]
    assert replies[0][0].finish_reason == "stop"
    assert replies[0][0].usage == {"completion_tokens": 3}
    assert replies[0][0].error is None


def test_the_request_carries_the_settings_and_extra_has_the_last_word(host: Host) -> None:
    host.client(temperature=0.5, top_p=0.9, max_tokens=7, extra={"top_k": 4, "max_tokens": 9}).chat([say("a")])
    body = host.bodies[0]
    assert body["path"] == "/v1/chat/completions"
    assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"], body["top_k"]) == (
        "m",
        0.5,
        0.9,
        9,
        4,
    )


def test_each_conversation_has_its_own_seed_and_the_same_one_every_time(host: Host) -> None:
    def seeds(seed: int | None) -> dict[str, int | None]:
        host.bodies.clear()
        host.client(seed=seed).chat([say(str(i)) for i in range(5)])
        return {body["messages"][0]["content"]: body.get("seed") for body in host.bodies}

    first = seeds(3)
    assert first == seeds(3)
    assert len(set(first.values())) == 5
    assert first != seeds(4)
    assert set(seeds(None).values()) == {None}


def test_no_more_requests_than_the_concurrency_are_under_way_at_once(host: Host) -> None:
    busy: list[int] = []
    most_busy = 0
    lock = threading.Lock()
    three = threading.Barrier(3, timeout=60.0)

    def together(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        nonlocal most_busy
        with lock:
            busy.append(1)
            most_busy = max(most_busy, len(busy))
        three.wait()
        time.sleep(0.03)
        # Counted out before the answer leaves: once it has, the client may rightly send the next request.
        with lock:
            busy.pop()
        echo(body, handler)

    host.answer = together
    replies = host.client(concurrency=3).chat([say(str(i)) for i in range(12)])
    assert [reply[0].error for reply in replies] == [None] * 12
    assert most_busy == 3


def test_a_server_that_ignores_n_is_asked_again_with_another_seed(host: Host) -> None:
    host.answer = lambda body, handler: send(handler, {"choices": [choice(str(body["seed"]))]})
    (replies,) = host.client().chat([say("a")], n=3)
    assert len({reply.text for reply in replies}) == 3
    assert [body["n"] for body in host.bodies] == [3, 2, 1]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_passing_fault_is_retried_until_it_passes(host: Host, status: int) -> None:
    def answer(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        send(handler, {"error": {"message": "busy"}}, status) if len(host.bodies) < 3 else echo(body, handler)

    host.answer = answer
    assert host.client(retries=2).chat([say("hi")])[0][0].text == "hi 0"
    assert len(host.bodies) == 3


def test_a_request_that_keeps_failing_becomes_an_error_reply_and_spares_the_others(host: Host) -> None:
    def answer(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        if body["messages"][0]["content"] == "bad":
            send(handler, {"error": {"message": "the engine\nis dead"}}, 500)
        else:
            echo(body, handler)

    host.answer = answer
    good, bad, also_good = host.client(retries=1).chat([say("x"), say("bad"), say("y")], n=2)
    assert [reply.text for reply in good + also_good] == ["x 0", "x 1", "y 0", "y 1"]
    assert [reply.error for reply in bad] == ["HTTP 500: the engine is dead"] * 2
    assert len(host.bodies) == 4


def test_waits_grow_twofold_with_jitter_that_the_seed_decides(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "FIRST_WAIT_S", 0.1)
    host.answer = lambda body, handler: send(handler, {}, 500)
    host.client(retries=2, seed=1).chat([say("a")])
    first, second = (late - early for early, late in zip(host.times, host.times[1:], strict=False))
    # At least half of 0.1 s, then of 0.2 s; how much later they come is up to the machine.
    assert first >= 0.05 and second >= 0.1


def test_retry_after_is_waited_for(host: Host) -> None:
    def answer(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        send(handler, {}, 429, Retry_After="0.4") if len(host.bodies) == 1 else echo(body, handler)

    host.answer = answer
    assert host.client().chat([say("a")])[0][0].error is None
    assert host.times[1] - host.times[0] >= 0.4


def test_a_retry_after_beyond_the_deadline_gives_up_at_once(host: Host) -> None:
    host.answer = lambda body, handler: send(handler, {"detail": "later"}, 429, Retry_After="7200")
    reply = host.client(total_s=3600.0).chat([say("a")])[0][0]  # a client that waits hangs here for an hour
    assert reply.error is not None and "429" in reply.error and len(host.bodies) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 301])
def test_a_refusal_stops_the_batch_at_once_with_the_server_s_words_in_one_line(host: Host, status: int) -> None:
    def answer(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        if body["messages"][0]["content"] == "stall":
            host.over.wait()
        send(handler, {"error": {"message": "no such\nmodel"}}, status)

    host.answer = answer
    with pytest.raises(OneiroError, match="no such model") as caught:
        host.client(timeout_s=3600, concurrency=2).chat([say("stall"), say("a"), say("b"), say("c")])
    assert "\n" not in str(caught.value)
    assert len(host.bodies) <= 3


def test_a_server_that_stalls_is_cut_off_at_the_timeout(host: Host) -> None:
    host.answer = lambda body, handler: host.over.wait()
    reply = host.client(timeout_s=0.2, retries=1).chat([say("a")])[0][0]
    assert reply.error is not None and "0.2 s" in reply.error


def test_a_server_that_drips_bytes_forever_is_cut_off_too(host: Host) -> None:
    def drip(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Slow: ")
        while not host.over.wait(0.05):
            handler.wfile.write(b"x")

    host.answer = drip
    reply = host.client(timeout_s=0.3, retries=0).chat([say("a")])[0][0]
    assert reply.error is not None and "0.3 s" in reply.error


def test_the_total_deadline_ends_the_batch_with_error_replies(host: Host) -> None:
    host.answer = lambda body, handler: host.over.wait()
    replies = host.client(total_s=0.4, timeout_s=3600, concurrency=2).chat([say(str(i)) for i in range(6)])
    assert all(group[0].error for group in replies)


NESTED = b"[" * 200_000
GARBAGE: list[Any] = [
    b"",
    b"<html>nginx</html>",
    b"\xff\xfe\x00",
    NESTED,
    b"[]",
    b"null",
    b'{"choices": []}',
    b'{"choices": {"0": 1}}',
    {"choices": [None]},
    {"choices": [{"message": "text"}]},
    {"choices": [{"message": {"content": 5}}]},
    {"choices": [{"message": {"content": "a"}, "token_ids": [1, -2]}]},
    {"choices": [{"message": {"content": "a"}, "token_ids": [True]}]},
    {"choices": [{"message": {"content": "a"}, "token_ids": "12"}]},
    {"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"logprob": "x"}]}}]},
    b'{"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"logprob": NaN}]}}]}',
    b'{"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"logprob": -1' + b"0" * 400 + b"}]}}]}",
    b'{"choices": [{"message": {"content": "a"}, "token_ids": [1' + b"0" * 400 + b"]}]}",
    b"\x1b]0;title\x07 \x1b[2J",
    {"choices": [{"message": {"content": "a"}, "token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1}]}}]},
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_an_error_reply_after_its_retries(host: Host, garbage: Any) -> None:
    host.answer = lambda body, handler: send(handler, garbage)
    reply = host.client(retries=1).chat([say("a")])[0][0]
    assert reply.error is not None and reply.error.isprintable() and len(reply.error) < 400
    assert reply.text == ""
    assert len(host.bodies) == 2


def test_a_reply_of_endless_length_is_not_read_to_its_end(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_BODY", 1 << 20)
    host.answer = lambda body, handler: send(handler, b" " * (5 << 20))
    reply = host.client(retries=0).chat([say("a")])[0][0]
    assert reply.error == "the reply is longer than 1 MiB"


def test_token_ids_and_their_log_probabilities_are_asked_for_and_read(host: Host) -> None:
    logprobs = {"content": [{"token": "o", "logprob": -0.5}, {"token": "k", "logprob": 0}]}
    answer = {"choices": [choice("ok", token_ids=[5, 6], logprobs=logprobs)], "prompt_token_ids": [1, 2, 3]}
    host.answer = lambda body, handler: send(handler, answer)
    reply = host.client(token_ids=True).chat([say("a")])[0][0]
    assert host.bodies[0]["logprobs"] is True and host.bodies[0]["return_token_ids"] is True
    assert (reply.tokens, reply.logprobs, reply.prompt_tokens) == ((5, 6), (-0.5, 0.0), (1, 2, 3))


def test_the_reasoning_of_a_thinking_model_is_kept_apart(host: Host) -> None:
    message = {"content": None, "reasoning_content": "hm"}
    host.answer = lambda body, handler: send(handler, {"choices": [{"message": message, "finish_reason": "length"}]})
    reply = host.client().chat([say("a")])[0][0]
    assert (reply.text, reply.reasoning, reply.finish_reason, reply.error) == ("", "hm", "length", None)


def test_the_key_comes_from_the_environment_and_a_missing_one_is_named(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "secret")
    host.client(api_key_env="SOME_KEY").chat([say("a")])
    assert host.headers[0]["Authorization"] == "Bearer secret"
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(OneiroError, match="SOME_KEY"):
        host.client(api_key_env="SOME_KEY")


def test_the_reason_is_said_at_the_first_fault_while_others_are_still_tried(host: Host) -> None:
    """The notice of a batch of many requests is one, and it comes before the second attempt."""
    attempts: list[int] = []

    def answer(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        attempts.append(len(noted))
        send(handler, {"error": {"message": "loading\nthe model"}}, 503)

    host.answer = answer
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("ignore")  # sockets of other tests may be found open just now
        warnings.simplefilter("always", Notice)
        host.client(retries=2, concurrency=2).chat([say("a"), say("b")])
    (notice,) = noted
    assert issubclass(notice.category, Notice)
    assert str(notice.message).endswith("/v1: HTTP 503: loading the model; trying again (retries=2)")
    assert attempts[0] == 0 and attempts[2:] == [1] * 4


def test_a_server_that_is_not_there_is_an_error_reply() -> None:
    config = ServerConfig(base_url="http://127.0.0.1:9/v1", model="m", retries=0, timeout_s=2)
    reply = Server(config).chat([say("a")])[0][0]
    assert reply.error is not None and reply.error.startswith("connection failed")


@pytest.mark.parametrize("url", ["localhost:8000", "file:///etc/passwd", "http://"])
def test_an_address_that_is_no_http_address_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="http"):
        ServerConfig(base_url=url, model="m")


def test_an_empty_batch_asks_nothing(host: Host) -> None:
    assert host.client().chat([]) == []
    assert host.bodies == []


# A server that cannot be trusted --------------------------------------------------------------------------------------

KEY = "sk-Ab/9+secret=%key"
SPELLINGS = [
    KEY,
    urllib.parse.quote(KEY, safe=""),
    urllib.parse.quote(KEY).lower().replace("sk-ab", "sk-Ab"),
    "".join(f"%{ord(c):02X}" for c in KEY),
    KEY.replace("/", "%2f"),
    "".join(f"\\u{ord(c):04x}" for c in KEY),
    json.dumps("".join(f"\\u{ord(c):04x}" for c in KEY)),
    "".join(f"&#{ord(c)};" for c in KEY),
]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("kind", ["content", "reasoning", "finish", "401", "500", "garbage", "reason phrase"])
def test_a_key_that_a_server_sends_back_is_in_nothing_we_keep_or_say(
    host: Host, monkeypatch: pytest.MonkeyPatch, kind: str, spelling: str
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    said = "x" * 280 + f" you sent {spelling}, did you not"

    def answer(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        if kind in ("401", "500"):
            send(handler, {"error": {"message": said}}, int(kind))
        elif kind == "garbage":
            send(handler, f"<html>{said}".encode())
        elif kind == "reason phrase":
            handler.wfile.write(f"HTTP/9.{said}\r\n\r\n".encode())
        else:
            message = {"content": said if kind == "content" else "a"}
            message |= {"reasoning_content": said} if kind == "reasoning" else {}
            finish = spelling if kind == "finish" else "stop"
            send(handler, {"choices": [{"message": message, "finish_reason": finish, "token_ids": [1, 2]}]})

    host.answer = answer
    client = host.client(api_key_env="SOME_KEY", retries=0)
    try:
        (reply,) = client.chat([say("a")])[0]
        kept = repr(reply)
        if kind in ("content", "reasoning"):
            assert HIDDEN in kept and reply.tokens is None
    except OneiroError as error:
        kept = str(error)
    for part in (KEY, KEY[:12], spelling[:40], spelling[-20:]):
        assert part not in kept


def test_a_placeholder_for_a_key_may_stand_in_a_reply(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "EMPTY")
    host.answer = lambda body, handler: send(handler, {"choices": [choice("the bowl is EMPTY")]})
    assert host.client(api_key_env="SOME_KEY").chat([say("a")])[0][0].text == "the bowl is EMPTY"


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel", "bell\x07"])
def test_a_key_that_no_header_can_hold_is_refused_unseen(host: Host, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("SOME_KEY", key)
    with pytest.raises(OneiroError, match="SOME_KEY") as caught:
        host.client(api_key_env="SOME_KEY")
    assert key not in str(caught.value)
    with pytest.raises(OneiroError) as refused:
        ServerConfig(base_url="http://me:hunter22@host/v1", model="m")
    assert "hunter22" not in str(refused.value)


def test_halves_of_characters_are_replaced_and_whole_ones_kept(host: Host) -> None:
    body = b'{"choices": [{"message": {"content": "\\ud800 \\ud83d\\ude00 \\u00e9"}, "finish_reason": "\\udfff"}]}'
    host.answer = lambda _, handler: send(handler, body)
    reply = host.client().chat([say("a")])[0][0]
    assert reply.text == "\ufffd \U0001f600 é" and reply.finish_reason == "\ufffd"


def test_a_reply_is_bounded_by_what_was_asked_for_and_read_no_further(host: Host) -> None:
    sent = 0

    def flood(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(60 << 4):
                sent += handler.wfile.write(b" " * (1 << 16))

    host.answer = flood
    reply = host.client(retries=0, max_tokens=10).chat([say("a")])[0][0]
    assert reply.error == "the reply is longer than 1.01 MiB"
    assert sent < 16 << 20


def test_a_reply_that_comes_too_slowly_ends_at_the_deadline_whatever_it_holds(host: Host) -> None:
    def trickle(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while not host.over.wait(0.02):
                handler.wfile.write(b" " * 100)

    host.answer = trickle
    reply = host.client(retries=0, timeout_s=0.3).chat([say("a")])[0][0]
    assert reply.error is not None and "within 0.3 s" in reply.error
