"""Chat with any OpenAI-compatible server: vLLM, SGLang, llama.cpp, or a hosted one.

One bad request never ends a batch: after its retries it becomes a `Completion` that says what went wrong. Only what no
retry can mend (a wrong key, an unknown model) stops the batch, at once and in one line. Everything a server sends is
checked before it is believed, and every wait ends. The API key is in no message and no reply, also where a server
sends it back.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import re
import socket
import threading
import time
import urllib.parse
import urllib.request
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from oneiro.runtime.clock import spent
from oneiro.runtime.errors import Notice, OneiroError
from oneiro.runtime.seeds import derive, generator
from oneiro.runtime.terminal import printable
from oneiro.sampling.completion import Completion, ServerFault, is_count, message_of, replies_in

MAX_BODY = 64 << 20
"""Bytes of a reply after which a server is taken to be broken."""
BODY_OF_NOTHING, BYTES_PER_TOKEN = 1 << 20, 1 << 10
"""What a reply may be long at most: so much, and so much for each token that was asked for."""
CHUNK = 1 << 16
HIDDEN = "[API key]"
SHORTEST_KEY = 6
"""Characters below which a key is a placeholder, as in `EMPTY`, and may stand in a reply by chance."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0


class ServerConfig(BaseModel):
    """Where the server is and how it samples."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str = "http://127.0.0.1:8000/v1"
    """Up to and including `/v1`."""
    model: str
    """The name the server knows the model by."""
    api_key_env: str | None = None
    """Environment variable that holds the key; None sends no key."""
    timeout_s: float = Field(300.0, gt=0)
    """Longest one HTTP request may take, from connect to last byte."""
    total_s: float = Field(6 * 3600.0, gt=0)
    """Longest one call of `chat` may take; what is unanswered then becomes an error reply."""
    retries: int = Field(5, ge=0)
    """Further attempts after the first, on 408, 429, 5xx, timeouts, broken connections and garbled replies."""
    concurrency: int = Field(16, ge=1, le=1024)
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(1024, ge=1)
    seed: int | None = 0
    """Each prompt gets a seed of its own derived from this one; None sends none (some hosted servers refuse it)."""
    token_ids: bool = False
    """Ask for token ids and their log-probabilities (vLLM, SGLang), so that replies can be trained on."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Sent with every request as it is, over the fields above."""

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base_url {url!r} is no http(s) address, e.g. http://127.0.0.1:8000/v1")
        if parts.username is not None or parts.password is not None:
            raise OneiroError("base_url holds a name or password; put the server's key into api_key_env")
        return url.rstrip("/")


class Server:
    """A client that holds no connection and no state between calls."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        self._key: re.Pattern[str] | None = None
        if config.api_key_env is not None:
            key = os.environ.get(config.api_key_env, "").strip()
            if not key:
                raise OneiroError(
                    f"the environment variable {config.api_key_env} is empty; set it to the server's API key"
                )
            if not key.isascii() or not key.isprintable():
                raise OneiroError(f"the environment variable {config.api_key_env} holds no API key: odd characters")
            self._headers["Authorization"] = f"Bearer {key}"
            self._key = _spellings(key) if len(key) >= SHORTEST_KEY else None

    def chat(self, messages_list: Sequence[list[dict[str, Any]]], n: int = 1) -> list[list[Completion]]:
        """`n` replies to each conversation, in order; a reply that could not be had carries `error`."""
        if not messages_list:
            return []
        batch = _Batch(deadline=time.monotonic() + self.config.total_s)
        workers = min(self.config.concurrency, len(messages_list))
        with spent("waiting"), ThreadPoolExecutor(workers, thread_name_prefix="oneiro-server") as pool:
            futures = [pool.submit(self._ask, batch, index, list(m), n) for index, m in enumerate(messages_list)]
            try:
                return [future.result() for future in futures]
            except BaseException:
                batch.abort()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _ask(self, batch: _Batch, index: int, messages: list[dict[str, Any]], n: int) -> list[Completion]:
        """All replies to one conversation. A server that ignores `n` is asked again for those still missing."""
        replies: list[Completion] = []
        round_ = 0
        while len(replies) < n:
            missing = n - len(replies)
            try:
                replies += self._attempts(batch, index, round_, self._body(messages, missing, index, round_))[:missing]
            except ServerFault as fault:
                return replies + [Completion(error=self._line(str(fault))) for _ in range(missing)]
            except OneiroError:
                batch.abort()  # from here too: `chat` may be waiting for an earlier conversation
                raise
            round_ += 1
        return replies

    def _body(self, messages: list[dict[str, Any]], n: int, index: int, round_: int) -> dict[str, Any]:
        config = self.config
        body: dict[str, Any] = {
            "model": config.model,
            "messages": messages,
            "n": n,
            "temperature": config.temperature,
            "top_p": config.top_p,
            "max_tokens": config.max_tokens,
        }
        if config.seed is not None:
            body["seed"] = derive(config.seed, "server", index, round_) % 2**31
        if config.token_ids:
            body |= {"logprobs": True, "return_token_ids": True}
        return body | config.extra

    def _attempts(self, batch: _Batch, index: int, round_: int, body: dict[str, Any]) -> list[Completion]:
        """One request with its retries: exponential backoff, seeded jitter, and the server's own Retry-After."""
        payload, longest = json.dumps(body).encode(), _longest(body)
        fault = ServerFault("not tried: the time for the whole batch was over")
        for attempt in range(self.config.retries + 1):
            if batch.over():
                break
            try:
                return [self._without_key(reply) for reply in replies_in(self._post(batch, payload, longest))]
            except ServerFault as error:
                fault = error
            if attempt < self.config.retries and not batch.over():
                batch.told(
                    f"{self.config.base_url}: {self._line(str(fault))}; trying again (retries={self.config.retries})"
                )
                jitter = generator(self.config.seed or 0, "backoff", index, round_, attempt).uniform(0.5, 1.0)
                wait = max(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt) * jitter, fault.retry_after)
                if not batch.pause(wait):
                    break
        raise fault

    def _without_key(self, reply: Completion) -> Completion:
        """The reply with the key cut out. Its tokens spell the key too: they go."""
        text, reasoning, finish = (self._hidden(part) for part in (reply.text, reply.reasoning, reply.finish_reason))
        if (text, reasoning, finish) == (reply.text, reply.reasoning, reply.finish_reason):
            return reply
        return Completion(text, finish, reasoning, usage=reply.usage)

    def _hidden(self, text: str) -> str:
        return self._key.sub(HIDDEN, text) if self._key is not None else text

    def _line(self, text: str) -> str:
        """A server's words as one line that any terminal can show."""
        return _line(self._hidden(text))

    def _post(self, batch: _Batch, payload: bytes, longest: int) -> bytes:
        """The body of a 200 reply; `ServerFault` where another attempt may help, `OneiroError` where none can."""
        seconds = min(self.config.timeout_s, batch.left())
        connection, target, headers = _connection(f"{self.config.base_url}/chat/completions", seconds)
        late = threading.Event()

        def cut() -> None:
            late.set()
            _hang_up(connection)

        # Socket timeouts restart with every byte; the timer bounds the request as a whole.
        timer = threading.Timer(seconds, cut)
        timer.daemon = True
        timer.start()
        batch.enter(connection)
        try:
            connection.connect()
            if late.is_set():
                raise TimeoutError
            connection.request("POST", target, payload, self._headers | headers)
            response = connection.getresponse()
            body = read_reply(response, longest, late)
        except (OSError, http.client.HTTPException) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise ServerFault(f"no reply within {seconds:.1f} s") from error
            raise ServerFault(f"connection failed: {self._line(str(error)) or type(error).__name__}") from error
        finally:
            timer.cancel()
            batch.leave(connection)
            connection.close()
        if late.is_set():
            raise ServerFault(f"no whole reply within {seconds:.1f} s")
        if len(body) > longest:
            raise ServerFault(f"the reply is longer than {longest / 2**20:.3g} MiB")
        if response.status == 200:
            return body
        said = self._line(f"HTTP {response.status}: {message_of(body)}")
        if response.status in (408, 429) or response.status >= 500:
            raise ServerFault(said, retry_after=_seconds(response.getheader("Retry-After")))
        raise OneiroError(
            f"{self.config.base_url} refused the request with {said}; check base_url, model and api_key_env"
        )


@dataclass
class _Batch:
    """What the threads of one `chat` share: the time left, and the open connections to cut when it must stop."""

    deadline: float
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: set[http.client.HTTPConnection] = field(default_factory=set)

    _warned: bool = False

    def told(self, line: str) -> None:
        """Say the first fault of the batch while others are still tried; the same words only once in a process."""
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            warnings.warn(line, Notice, stacklevel=1)

    def left(self) -> float:
        return max(self.deadline - time.monotonic(), 0.01)

    def over(self) -> bool:
        return self._stop.is_set() or time.monotonic() >= self.deadline

    def pause(self, seconds: float) -> bool:
        """Wait; False when the batch ends before the pause would."""
        return time.monotonic() + seconds < self.deadline and not self._stop.wait(seconds)

    def enter(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if self._stop.is_set():
                raise ServerFault("not sent: the batch was stopped")
            self._open.add(connection)

    def leave(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._open.discard(connection)

    def abort(self) -> None:
        self._stop.set()
        with self._lock:
            for connection in self._open:
                _hang_up(connection)


def _connection(url: str, timeout: float) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    """An unopened connection to `url`, through the proxy of the environment if one is set, and what to ask it for."""
    parts = urllib.parse.urlsplit(url)
    host, port = str(parts.hostname), parts.port
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    path = urllib.parse.urlunsplit(("", "", parts.path, parts.query, ""))
    proxy = urllib.parse.urlsplit(urllib.request.getproxies().get(parts.scheme, ""))
    if not proxy.hostname or urllib.request.proxy_bypass(host):
        return kind(host, port, timeout=timeout), path, {}
    connection = kind(proxy.hostname, proxy.port or 80, timeout=timeout)
    if parts.scheme == "https":
        connection.set_tunnel(host, port or 443)
        return connection, path, {}
    return connection, url, {}


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """Wake a thread that is reading from `connection`; closing alone would not."""
    if connection.sock is not None:
        with suppress(OSError):
            # The plain socket's method: the TLS one also drops state that the reading thread still uses.
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def _seconds(header: str | None) -> float:
    """Retry-After as seconds from now: it is a number or an HTTP date; anything else counts as absent."""
    if not header:
        return 0.0
    with suppress(ValueError):
        return min(max(float(header), 0.0), 24 * 3600.0)
    with suppress(ValueError, TypeError, OverflowError):
        return max(email.utils.parsedate_to_datetime(header).timestamp() - time.time(), 0.0)
    return 0.0


def _spellings(key: str) -> re.Pattern[str]:
    """Finds a key also where some of its characters are written as in addresses, JSON or HTML."""
    return re.compile(
        "".join(f"(?:{re.escape(c)}|(?i:%{ord(c):02x}|\\\\+u{ord(c):04x}|&#x?0*{_html(c)};))" for c in key)
    )


def _html(character: str) -> str:
    return f"(?:{ord(character)}|{ord(character):x})"


def _longest(body: dict[str, Any]) -> int:
    """Bytes that the reply to a request may have."""
    asked = [body[key] for key in ("n", "max_tokens")]
    count = asked[0] * asked[1] if all(is_count(value) for value in asked) else MAX_BODY
    return min(MAX_BODY, BODY_OF_NOTHING + BYTES_PER_TOKEN * count)


def read_reply(response: http.client.HTTPResponse, longest: int, late: threading.Event) -> bytes:
    """A reply piece by piece, while there is time; one byte more than the longest says that it was longer."""
    found = bytearray()
    while (
        len(found) <= longest and not late.is_set() and (piece := response.read1(min(CHUNK, longest + 1 - len(found))))
    ):
        found += piece
    return bytes(found)


def _line(text: str) -> str:
    return printable(" ".join(text.split()))[:300]
