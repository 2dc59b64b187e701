"""The client against a real HTTP server that fails, stalls, limits and lies."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest
from pydantic import ValidationError

from oneiro.runtime.errors import Notice, OneiroError
from oneiro.runtime.seeds import derive, generator
from oneiro.sampling import server as server_module
from oneiro.sampling.http import ServerFault
from oneiro.sampling.server import HIDDEN_KEY, Completion, Server, ServerConfig, message_of, replies_in
from tests.sampling.test_http import serving

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
    monkeypatch.setattr(server_module, "MAX_REPLY_BYTES", 1 << 20)
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


@pytest.mark.parametrize("kind", ["401", "500", "garbage", "protocol"])
def test_a_key_that_a_server_sends_back_is_in_no_message(
    host: Host, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("SOME_KEY", f" {KEY}\n")
    words = "x" * 200 + f" you sent {KEY}, did you not " + "y" * 200

    def answer(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        if kind in ("401", "500"):
            send(handler, {"error": {"message": words}}, int(kind))
        elif kind == "garbage":
            send(handler, f"<html>{words}".encode())
        else:
            handler.wfile.write(f"HTTP/9.{words}\r\n\r\n".encode())

    host.answer = answer
    try:
        message = host.client(api_key_env="SOME_KEY", retries=0).chat([say("a")])[0][0].error or ""
    except OneiroError as error:
        message = str(error)
    assert KEY not in message and KEY[:9] not in message
    assert HIDDEN_KEY in message or kind == "protocol"
    assert host.headers[0]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("part", ["content", "reasoning_content"])
def test_a_key_that_a_server_sends_back_is_in_no_reply(host: Host, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    spelt = {"token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1.0}, {"logprob": -2.0}]}}
    message = {"content": "Up", "reasoning_content": "far", part: f"it is {KEY}."}
    host.answer = lambda body, handler: send(
        handler, {"choices": [{"message": message, "finish_reason": "stop", **spelt}, choice("Down", **spelt)]}
    )
    ((kept, other),) = host.client(api_key_env="SOME_KEY").chat([say("a")], n=2)
    assert (kept.text, kept.reasoning) == tuple(
        message[p].replace(KEY, HIDDEN_KEY) for p in ("content", "reasoning_content")
    )
    assert KEY not in str(kept) and HIDDEN_KEY in str(kept) and kept.tokens is None is kept.logprobs
    assert (other.text, other.tokens, other.logprobs) == ("Down", (1, 2), (-1.0, -2.0))
    monkeypatch.setenv("SOME_KEY", "Down")  # a word, as local servers have: no secret
    assert host.client(api_key_env="SOME_KEY").chat([say("a")], n=2)[0][1] == other


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


# What is sent ---------------------------------------------------------------------------------------------------------


def client(**settings: Any) -> Server:
    return Server(ServerConfig(**{"model": "m", **settings}))


def test_a_body_holds_each_setting_and_a_seed_of_its_own() -> None:
    asked = client(temperature=0.3, top_p=0.8, max_tokens=11, seed=5)
    body = asked._body([{"role": "user"}], 4, 7, 2)
    assert body == {
        "model": "m",
        "messages": [{"role": "user"}],
        "n": 4,
        "temperature": 0.3,
        "top_p": 0.8,
        "max_tokens": 11,
        "seed": derive(5, "server", 7, 2) % 2147483648,
    }
    assert client(seed=None, token_ids=True, extra={"n": 9})._body([], 1, 0, 0) == {
        "model": "m",
        "messages": [],
        "n": 9,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 1024,
        "logprobs": True,
        "return_token_ids": True,
    }


def test_the_address_loses_its_last_slashes_and_may_hold_no_name() -> None:
    assert ServerConfig(base_url="https://host/v1//", model="m").base_url == "https://host/v1"
    for url in ("ftp://host/v1", "https:///v1"):
        with pytest.raises(ValidationError, match="no http"):
            ServerConfig(base_url=url, model="m")
    for url in ("http://me@host/v1", "http://:word@host/v1"):
        with pytest.raises(OneiroError, match="name or password"):
            ServerConfig(base_url=url, model="m")


def test_a_connection_goes_where_the_address_says_or_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    met: list[tuple[str, str, str]] = []

    def at(place: str) -> Callable[[BaseHTTPRequestHandler], None]:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            met.append((place, handler.command, handler.path))
            handler.wfile.write(b"HTTP/1.0 400 Met\r\n\r\n")

        return answer

    def way(url: str) -> tuple[str, str, str]:
        """Who was met first, and what it was asked for; nobody answers, so that the request ends there."""
        met.clear()
        with contextlib.suppress(OneiroError):
            client(base_url=url, retries=0, timeout_s=60.0).chat([[]])
        return met[0]

    with serving(at("host")) as host, serving(at("proxy")) as proxy:
        assert way(f"{host}/v1") == ("host", "POST", "/v1/chat/completions")
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("https_proxy", proxy)
        assert way("http://far.invalid:81/v1") == ("proxy", "POST", "http://far.invalid:81/v1/chat/completions")
        # Under TLS the proxy is asked for a tunnel to the host, at its own port or the usual one.
        assert way("https://far.invalid/v1") == ("proxy", "CONNECT", "far.invalid:443")
        assert way("https://far.invalid:8443/v1") == ("proxy", "CONNECT", "far.invalid:8443")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert way(f"{host}/v1") == ("host", "POST", "/v1/chat/completions")


# How long is waited and read ------------------------------------------------------------------------------------------


def test_retry_after_is_a_number_or_a_date_and_no_more_than_a_day() -> None:
    seconds = server_module._retry_after_s
    assert [seconds(header) for header in (None, "", "2.5", "-3", "1e9", "soon")] == [0.0, 0.0, 2.5, 0.0, 86400.0, 0.0]
    later, earlier = (email.utils.formatdate(time.time() + shift, usegmt=True) for shift in (100, -100))
    assert 95 < seconds(later) <= 100 and seconds(earlier) == 0.0


def test_a_reply_may_be_so_long_as_its_tokens_need() -> None:
    bound = server_module._max_reply_bytes
    assert bound({"n": 3, "max_tokens": 5}) == (1 << 20) + 15 * 1024
    assert bound({"n": 1000, "max_tokens": 1000}) == 64 << 20
    assert bound({"n": "many", "max_tokens": 5}) == 64 << 20
    assert bound({"n": 2, "max_tokens": -1}) == 64 << 20


def test_a_server_s_words_are_one_line_of_three_hundred_characters() -> None:
    assert client()._line("a \n b\t" + "c" * 400) == "a b " + "c" * 296
    assert client()._line("two\nlines\x1b").isprintable()


class Waits:
    """Stands in for `asyncio.sleep`: no test waits for a minute."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        monkeypatch.setattr(server_module.asyncio, "sleep", self)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def attempt(made: Server, post: Callable[..., bytes], seconds: float, index: int = 0, round_: int = 0) -> None:
    """One request of a batch that has so many seconds left; `post` stands in for the server."""

    async def posted(*arguments: Any) -> bytes:
        return post(*arguments)

    made._post = posted  # type: ignore[method-assign]
    client: Any = None
    batch = server_module._Batch(client, asyncio.Semaphore(1), time.monotonic() + seconds)
    asyncio.run(made._attempt(batch, index, round_, {"n": 1, "max_tokens": 1}))


def test_attempts_wait_twice_as_long_each_time_within_the_seeded_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = iter([ServerFault(f"fault {k}", 40.0 if k == 2 else 0.0) for k in range(9)])
    waits = Waits(monkeypatch)

    def post(*arguments: Any) -> bytes:
        raise next(faults)

    with pytest.raises(ServerFault, match="fault 8"):
        attempt(client(retries=8, seed=3), post, 1e9, index=4, round_=1)
    jitter = [generator(3, "backoff", 4, 1, number).uniform(0.5, 1.0) for number in range(8)]
    plain = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    expected = [max(p * j, 40.0 if k == 2 else 0.0) for k, (p, j) in enumerate(zip(plain, jitter, strict=True))]
    assert waits.seconds == pytest.approx(expected) and waits.seconds[2] == 40.0


def test_no_attempt_is_made_when_time_is_over_and_none_follows_a_pause_that_would_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[float] = []
    waits = Waits(monkeypatch)

    def post(client: Any, body: Any, seconds: float) -> bytes:
        limits.append(seconds)
        raise ServerFault("busy", 100.0)

    made = client(retries=3, timeout_s=300.0)
    with pytest.raises(ServerFault, match="not tried: the time for the whole batch was over"):
        attempt(made, post, -1)
    assert limits == []
    # Nobody is warned of another attempt that will not be made.
    with warnings.catch_warnings(), pytest.raises(ServerFault, match="busy"):
        warnings.simplefilter("error")
        attempt(made, post, 50)
    assert len(limits) == 1 and 40 < limits[0] <= 50 and waits.seconds == []


def test_what_is_missing_is_requested_again_and_never_more(host: Host) -> None:
    def answer(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        if len(host.bodies) == 5:
            send(handler, {"error": "two\nlines"}, 500)
        else:
            send(handler, {"choices": [choice(f"{len(host.bodies)}.{k}") for k in range(2)]})

    host.answer = answer
    made = host.client(retries=0)
    assert [reply.text for reply in made.chat([say("a")], n=3)[0]] == ["1.0", "1.1", "2.0"]
    assert [(body["n"], body["seed"]) for body in host.bodies] == [
        (n, derive(0, "server", 0, round_) % 2**31) for round_, n in ((0, 3), (1, 1))
    ]
    (replies,) = made.chat([say("a")], n=6)
    assert [reply.text for reply in replies] == ["3.0", "3.1", "4.0", "4.1", "", ""]
    assert [reply.error for reply in replies] == [None] * 4 + ["HTTP 500: two lines"] * 2


def test_a_batch_works_where_an_event_loop_is_already_running(host: Host) -> None:
    async def notebook_cell() -> str:
        return host.client().chat([say("hi")])[0][0].text

    assert asyncio.run(notebook_cell()) == "hi 0"


def test_a_proxy_that_cannot_be_used_is_one_line(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "gopher://127.0.0.1:1")
    with pytest.raises(OneiroError, match=r"^the proxy settings of the environment cannot be used: .*gopher"):
        host.client().chat([say("hi")])


def replies(data: Any) -> list[Completion]:
    return replies_in(data if isinstance(data, bytes) else json.dumps(data).encode())


def message(**more: Any) -> dict[str, Any]:
    return {"message": {"content": "a", **more}}


def test_every_part_of_a_reply_is_read() -> None:
    data = {
        "choices": [
            {
                "message": {"content": "one", "reasoning": "why"},
                "finish_reason": "stop",
                "token_ids": [0, 2**31 - 1],
                "logprobs": {"content": [{"logprob": -1e29}, {"logprob": 0.0009}]},
            },
            {"message": {"content": "two", "reasoning_content": "first", "reasoning": "second"}},
            {"message": {"content": None}, "finish_reason": 5, "logprobs": {"content": []}, "token_ids": []},
            {"message": {}, "finish_reason": "x" * 99, "logprobs": {"content": None}},
            {"message": {"content": "", "reasoning_content": "", "reasoning": "late"}, "finish_reason": "x" * 100},
        ],
        "usage": {"prompt_tokens": 3, "total_tokens": 2**31, "share": 0.5, "yes": True, "less": -1, "nothing": 0},
        "prompt_token_ids": [7],
    }
    usage = {"prompt_tokens": 3, "nothing": 0}
    common: dict[str, Any] = {"prompt_tokens": (7,), "usage": usage}
    assert replies(data) == [
        Completion("one", "stop", "why", (0, 2**31 - 1), (-1e29, 0.0009), **common),
        Completion("two", "", "first", **common),
        Completion("", "", "", (), (), **common),
        Completion("", "x" * 99, **common),
        Completion("", "", "late", **common),
    ]
    assert replies({"choices": [message()], "usage": [1]}) == [Completion("a")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "the reply is no JSON: {"),
        (b"[1]", r"no choices: \[1\]"),
        ({"choices": "no"}, "no choices"),
        ({"choices": []}, "no choices"),
        ({"error": {"message": "tired"}}, "no choices: tired"),
        ({"choices": [[]]}, "no message"),
        ({"choices": [{}]}, "no message"),
        ({"choices": [message(content=["a"])]}, "not text"),
        ({"choices": [message(reasoning=["a"])]}, "not text"),
        ({"choices": [message() | {"token_ids": {"1": 2}}]}, "whole numbers"),
        ({"choices": [message() | {"token_ids": [2**31]}]}, "whole numbers"),
        ({"choices": [message() | {"token_ids": [1, 0.5]}]}, "whole numbers"),
        ({"choices": [message()], "prompt_token_ids": [-1]}, "whole numbers"),
        ({"choices": [message() | {"logprobs": {"content": 5}}]}, "numbers below zero"),
        ({"choices": [message() | {"logprobs": {"content": [-1.0]}}]}, "numbers below zero"),
        ({"choices": [message() | {"logprobs": {"content": [{"logprob": 0.001}]}}]}, "numbers below zero"),
        ({"choices": [message() | {"logprobs": {"content": [{"logprob": -1e30}]}}]}, "numbers below zero"),
        ({"choices": [message() | {"logprobs": {"content": [{"logprob": -1.0}, {}]}}]}, "numbers below zero"),
        (
            {"choices": [message() | {"token_ids": [1], "logprobs": {"content": []}}]},
            "1 token ids and 0 log-probabilities",
        ),
    ],
)
def test_whatever_is_not_as_it_should_be_is_named(data: Any, said: str) -> None:
    with pytest.raises(ServerFault, match=said):
        replies(data)


def test_a_servers_own_words_about_an_error_are_found_wherever_they_are() -> None:
    for body, said in (
        ({"error": {"message": " tired\n"}}, "tired"),
        ({"error": "tired"}, "tired"),
        ({"message": "tired"}, "tired"),
        ({"error": {"code": 3}}, '{"code": 3}'),
        ({"error": {"message": [1]}}, "[1]"),
        ([1, 2], "[1, 2]"),
        ("", "(no message)"),
    ):
        assert message_of(json.dumps(body).encode()) == said
    assert message_of(b"<html>\xff") == "<html>\ufffd"
    assert message_of(b"") == "(no message)"
    assert message_of(b"x" * 100_001) == "x" * 100_000
