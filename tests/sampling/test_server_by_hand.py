"""The pieces of the client one by one: what is asked for, waited for, believed and cut off, with the numbers worked
out by hand.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import io
import json
import threading
import time
import warnings
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from pydantic import ValidationError

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import derive, generator
from oneiro.sampling import server
from oneiro.sampling.completion import Completion, ServerFault, message_of, replies_in
from oneiro.sampling.server import Server, ServerConfig
from tests.sampling.test_request import serving


def client(**settings: Any) -> Server:
    return Server(ServerConfig(**{"model": "m", **settings}))


def batch(seconds: float = 60.0) -> Any:
    return server._Batch(deadline=time.monotonic() + seconds)


# What is asked for ----------------------------------------------------------------------------------------------------


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


def test_headers_carry_the_key_and_a_short_one_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
    assert client()._headers == plain
    for key, hidden in (("sixsix", True), ("fives", False)):
        monkeypatch.setenv("SOME_KEY", f" {key}\n")
        made = client(api_key_env="SOME_KEY")
        assert made._headers == plain | {"Authorization": f"Bearer {key}"}
        assert made._hidden(f"<{key}>") == ("<[API key]>" if hidden else f"<{key}>")
    assert client()._hidden("sixsix") == "sixsix"


def test_a_key_is_found_in_each_spelling_of_each_of_its_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "aJ/.bc")
    hidden = client(api_key_env="SOME_KEY")._hidden
    for spelling in (
        "aJ/.bc",
        "%61J%2F.bc",
        "a\\u004A/.bc",
        "a\\\\u004a/.bc",
        "&#97;J&#x2f;&#0046;bc",
        "&#x0061;J/.bc",
    ):
        assert hidden(f"x{spelling}y") == "x[API key]y", spelling
    for other in ("AJ/.bc", "aj/.bc", "aJ/xbc", "aJ/.b", "%61J%2F.b&#99"):
        assert hidden(other) == other


# What is believed -----------------------------------------------------------------------------------------------------


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
    assert server._line("a \n b\t" + "c" * 400) == "a b " + "c" * 296
    assert client()._line("two\nlines\x1b") == "two lines" + server._line("\x1b")


def test_a_reply_that_holds_the_key_keeps_its_counts_and_loses_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret-key")
    made = client(api_key_env="SOME_KEY")
    whole = Completion("a", "stop", "b", (1,), (-0.5,), (2,), {"n": 1})
    assert made._without_key(whole) is whole
    for place in ("text", "reasoning", "finish_reason"):
        parts = {"text": "a", "reasoning": "b", "finish_reason": "stop"} | {place: "<secret-key>"}
        told = Completion(**parts, tokens=(1,), logprobs=(-0.5,), prompt_tokens=(2,), usage={"n": 1})  # type: ignore[arg-type]
        assert made._without_key(told) == Completion(**parts | {place: "<[API key]>"}, usage={"n": 1})  # type: ignore[arg-type]


# How long is waited and read ------------------------------------------------------------------------------------------


def test_retry_after_is_a_number_or_a_date_and_no_more_than_a_day() -> None:
    seconds = server._seconds
    assert [seconds(header) for header in (None, "", "2.5", "-3", "1e9", "soon")] == [0.0, 0.0, 2.5, 0.0, 86400.0, 0.0]
    later, earlier = (email.utils.formatdate(time.time() + shift, usegmt=True) for shift in (100, -100))
    assert 95 < seconds(later) <= 100 and seconds(earlier) == 0.0


def test_a_reply_may_be_so_long_as_its_tokens_need() -> None:
    assert server._longest({"n": 3, "max_tokens": 5}) == (1 << 20) + 15 * 1024
    assert server._longest({"n": 1000, "max_tokens": 1000}) == 64 << 20
    assert server._longest({"n": "many", "max_tokens": 5}) == 64 << 20
    assert server._longest({"n": 2, "max_tokens": -1}) == 64 << 20


def test_reading_ends_one_byte_beyond_the_longest_or_when_it_is_late() -> None:
    asked: list[int] = []
    late, late_at = threading.Event(), 0

    class Response(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            asked.append(size or 0)
            if late_at == len(asked):
                late.set()
            return super().read1(size)

    def read(size: int, longest: int) -> int:
        asked.clear()
        return len(server.read_reply(Response(b"x" * size), longest, late))  # type: ignore[arg-type]

    assert read(10, 100) == 10 and asked == [101, 91]
    assert read(200, 100) == 101 and asked == [101]
    assert read(70000, 70000) == 70000 and asked == [65536, 4465, 1]
    late_at = 1
    assert read(200_000, 1 << 20) == 65536


def test_attempts_wait_twice_as_long_each_time_within_the_seeded_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    faults = iter([ServerFault(f"fault {k}", 40.0 if k == 2 else 0.0) for k in range(9)])

    def post(*arguments: Any) -> bytes:
        raise next(faults)

    made, shared = client(retries=8, seed=3), batch(1e9)
    monkeypatch.setattr(made, "_post", post)
    monkeypatch.setattr(shared, "pause", lambda seconds: waits.append(seconds) or True)
    with pytest.raises(ServerFault, match="fault 8"):
        made._attempts(shared, 4, 1, {"n": 1, "max_tokens": 1})
    jitter = [generator(3, "backoff", 4, 1, attempt).uniform(0.5, 1.0) for attempt in range(8)]
    plain = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    expected = [max(p * j, 40.0 if k == 2 else 0.0) for k, (p, j) in enumerate(zip(plain, jitter, strict=True))]
    assert waits == pytest.approx(expected) and waits[2] == 40.0


def test_no_attempt_is_made_when_time_is_over_and_none_follows_a_pause_that_would_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[bytes] = []

    def post(shared: Any, payload: bytes, longest: int) -> bytes:
        sent.append(payload)
        raise ServerFault("busy", 100.0)

    made, body = client(retries=3), {"n": 1, "max_tokens": 2}
    monkeypatch.setattr(made, "_post", post)
    with pytest.raises(ServerFault, match="not tried: the time for the whole batch was over"):
        made._attempts(batch(-1), 0, 0, body)
    assert sent == []
    with pytest.raises(ServerFault, match="busy"):
        made._attempts(batch(50), 0, 0, body)
    assert sent == [json.dumps(body).encode()]
    stopped = batch()
    stopped.abort()
    with pytest.raises(ServerFault, match="not tried"):
        made._attempts(stopped, 0, 0, body)


def test_nobody_is_told_of_another_attempt_that_will_not_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal stops the batch while another request fails: what is said then is the refusal, and nothing else."""
    made, stopped = client(retries=3), batch(100)

    def post(shared: Any, payload: bytes, longest: int) -> bytes:
        shared.abort()
        raise ServerFault("not sent: the batch was stopped")

    monkeypatch.setattr(made, "_post", post)
    with warnings.catch_warnings(record=True) as told, pytest.raises(ServerFault, match="not sent"):
        warnings.simplefilter("always")
        made._attempts(stopped, 0, 0, {"n": 1, "max_tokens": 2})
    assert told == []


def test_a_reply_may_be_as_long_as_allowed_and_no_longer() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers["Content-Length"]))
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 100)

    with serving(answer) as url:
        made = client(base_url=f"{url}/v1")
        assert made._post(batch(), b"{}", 100) == b"x" * 100
        with pytest.raises(ServerFault, match="the reply is longer than"):
            made._post(batch(), b"{}", 99)


def test_a_connection_that_opens_too_late_carries_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), list[Any]()

    class Slow:
        def connect(self) -> None:
            assert over.wait(60)

        def request(self, *parts: Any) -> None:
            asked.append(parts)
            raise OSError("hung up")

        def close(self) -> None:
            pass

    monkeypatch.setattr(server, "_hang_up", lambda connection: over.set())
    monkeypatch.setattr(server, "_connection", lambda url, seconds: (Slow(), "/", {}))
    with pytest.raises(ServerFault, match=r"no reply within 0\.1 s"):
        client(timeout_s=0.1)._post(batch(), b"{}", 100)
    assert asked == []


def test_what_is_missing_is_asked_for_again_and_never_more_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = client(), []

    def attempts(shared: Any, index: int, round_: int, body: dict[str, Any]) -> list[Completion]:
        asked.append((index, round_, body["n"], body["seed"]))
        if round_ == 2:
            raise ServerFault("two\nlines")
        return [Completion(f"{round_}.{k}") for k in range(2)]

    monkeypatch.setattr(made, "_attempts", attempts)
    assert [reply.text for reply in made._ask(batch(), 6, [], 3)] == ["0.0", "0.1", "1.0"]
    assert asked == [(6, r, n, derive(0, "server", 6, r) % 2**31) for r, n in ((0, 3), (1, 1))]
    replies = made._ask(batch(), 6, [], 6)
    assert [reply.text for reply in replies] == ["0.0", "0.1", "1.0", "1.1", "", ""]
    assert [reply.error for reply in replies] == [None] * 4 + ["two lines"] * 2


def test_a_batch_counts_its_time_and_hangs_up_what_is_open() -> None:
    ended, running = batch(-1), batch(100)
    assert ended.left() == 0.01 and ended.over() and 0.01 < running.left() <= 100 and not running.over()
    assert not running.pause(101) and running.pause(0.001) and not batch(0.5).pause(0.6)
    one: Any = http.client.HTTPConnection("127.0.0.1", 9)
    two: Any = http.client.HTTPConnection("127.0.0.1", 9)
    running.enter(one)
    running.enter(two)
    running.leave(two)
    running.leave(two)
    assert running._open == {one}
    hung: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "_hang_up", hung.append)
        running.abort()
    assert hung == [one] and running.over() and not running.pause(0.001)
    with pytest.raises(ServerFault, match="not sent: the batch was stopped"):
        running.enter(two)
    assert running._open == {one}


def test_the_first_refusal_stops_the_threads_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[Any] = []
    ran_out: list[bool] = []

    def attempts(batch: Any, index: int, round_: int, body: dict[str, Any]) -> list[Completion]:
        shared.append(batch)
        if index == 1:
            raise OneiroError("wrong key")
        ran_out.append(batch.pause(3600))  # the other thread waits for an hour, or until it is woken
        raise ServerFault("stopped")

    made = client(concurrency=2, total_s=7200.0)
    monkeypatch.setattr(made, "_attempts", attempts)
    start = time.monotonic()
    with pytest.raises(OneiroError, match="wrong key"):
        made.chat([[], []])
    assert shared[0].over() and not any(ran_out)
    assert start + 7200 <= shared[0].deadline
