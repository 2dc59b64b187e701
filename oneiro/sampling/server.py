"""Chat with any OpenAI-compatible server: vLLM, SGLang, llama.cpp, or a hosted one.

One bad request never ends a batch: after its retries it becomes a `Completion` that says what went wrong. Only what no
retry can mend (a wrong key, an unknown model) stops the batch, at once and in one line. Everything a server sends is
checked before it is believed, and every wait ends. The API key is in no message and no reply.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import time
import urllib.parse
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from oneiro.runtime.clock import spent
from oneiro.runtime.errors import Notice, OneiroError, printable
from oneiro.runtime.seeds import derive, generator
from oneiro.sampling.http import ServerFault, fetch, open_client, run

if TYPE_CHECKING:
    import httpx2
import json
from dataclasses import field

MAX_REPLY_BYTES = 64 << 20  # of any reply; a server that sends more is broken
BASE_REPLY_BYTES, BYTES_PER_TOKEN = 1 << 20, 1 << 10  # a token comes with its text, id and log-probability as JSON
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0  # pauses double from the one to the other
LONGEST_RETRY_AFTER_S = 24 * 3600.0  # beyond a day a header is a mistake
HIDDEN_KEY = "[API key]"
SHORTEST_SECRET = 16
"""Characters of a key that is cut out of replies: shorter ones, such as those of local servers, may be plain words."""


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
    """Requests at once."""
    temperature: float = Field(1.0, ge=0)
    """As above."""
    top_p: float = Field(1.0, gt=0, le=1)
    """As above."""
    max_tokens: int = Field(1024, ge=1)
    """Longest reply."""
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
        self._headers = {"Accept": "application/json"}
        self._key = ""
        if config.api_key_env is not None:
            self._key = os.environ.get(config.api_key_env, "").strip()
            if not self._key:
                raise OneiroError(
                    f"the environment variable {config.api_key_env} is empty; set it to the server's API key"
                )
            if not self._key.isascii() or not self._key.isprintable():
                raise OneiroError(f"the environment variable {config.api_key_env} holds no API key: odd characters")
            self._headers["Authorization"] = f"Bearer {self._key}"

    def chat(self, messages_list: Sequence[list[dict[str, Any]]], n: int = 1) -> list[list[Completion]]:
        """`n` replies to each conversation, in order; a reply that could not be had carries `error`."""
        if not messages_list:
            return []
        with spent("waiting"):
            return run(self._chat, messages_list, n)

    async def _chat(self, messages_list: Sequence[list[dict[str, Any]]], n: int) -> list[list[Completion]]:
        config = self.config
        turns = asyncio.Semaphore(config.concurrency)
        async with open_client(self._headers, proxies=True) as client:
            batch = _Batch(client, turns, deadline=time.monotonic() + config.total_s)
            try:
                # A refusal in one task cancels the others: what one request may not do, none may.
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._answer(batch, index, messages, n))
                        for index, messages in enumerate(messages_list)
                    ]
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _answer(self, batch: _Batch, index: int, messages: list[dict[str, Any]], n: int) -> list[Completion]:
        """All replies to one conversation. A server that ignores `n` is asked again for those still missing."""
        replies: list[Completion] = []
        round_ = 0
        async with batch.turns:
            while len(replies) < n:
                missing = n - len(replies)
                try:
                    body = self._body(messages, missing, index, round_)
                    replies += map(self._without_key, (await self._attempt(batch, index, round_, body))[:missing])
                except ServerFault as fault:
                    return replies + [Completion(error=self._line(str(fault))) for _ in range(missing)]
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

    async def _attempt(self, batch: _Batch, index: int, round_: int, body: dict[str, Any]) -> list[Completion]:
        """One request with its retries: exponential backoff, seeded jitter, and the server's own Retry-After."""
        config = self.config
        fault = ServerFault("not tried: the time for the whole batch was over")
        for attempt in range(config.retries + 1):
            seconds = min(config.timeout_s, batch.deadline - time.monotonic())
            if seconds <= 0:
                break
            try:
                return replies_in(await self._post(batch.client, body, seconds))
            except ServerFault as error:
                fault = error
            jitter = generator(config.seed or 0, "backoff", index, round_, attempt).uniform(0.5, 1.0)
            wait = max(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt) * jitter, fault.retry_after)
            if attempt == config.retries or time.monotonic() + wait >= batch.deadline:
                break
            if not batch.warned:  # the first fault of a batch, while others are still tried
                batch.warned = True
                line = f"{config.base_url}: {self._line(str(fault))}; trying again (retries={config.retries})"
                warnings.warn(line, Notice, stacklevel=1)
            await asyncio.sleep(wait)
        raise fault

    async def _post(self, client: httpx2.AsyncClient, body: dict[str, Any], seconds: float) -> bytes:
        """The content of a 200 reply; `ServerFault` where another attempt may help, `OneiroError` where none can."""
        url = f"{self.config.base_url}/chat/completions"
        response, content = await fetch(client, url, body, seconds, _max_reply_bytes(body))
        if response.status_code == 200:
            return content
        line = self._line(f"HTTP {response.status_code}: {message_of(content)}")
        if response.status_code in (408, 429) or response.status_code >= 500:
            raise ServerFault(line, retry_after=_retry_after_s(response.headers.get("Retry-After")))
        raise OneiroError(
            f"{self.config.base_url} refused the request with {line}; check base_url, model and api_key_env"
        )

    def _line(self, text: str) -> str:
        """A server's words as one line that any terminal can show, without the key that it may send back."""
        return printable(" ".join(self._hide(text).split()))[:300]

    def _without_key(self, reply: Completion) -> Completion:
        """Replies are written into a run's folder, which people share. Tokens that spell the key go with it."""
        if not self._key or len(self._key) < SHORTEST_SECRET or self._key not in f"{reply.text}\n{reply.reasoning}":
            return reply
        text, reasoning = self._hide(reply.text), self._hide(reply.reasoning)
        return replace(reply, text=text, reasoning=reasoning, tokens=None, logprobs=None)

    def _hide(self, text: str) -> str:
        return text.replace(self._key, HIDDEN_KEY) if self._key else text


@dataclass
class _Batch:
    """What the requests of one `chat` share."""

    client: httpx2.AsyncClient
    turns: asyncio.Semaphore
    deadline: float
    warned: bool = False


def _retry_after_s(header: str | None) -> float:
    """Retry-After as seconds from now: it is a number or an HTTP date; anything else counts as absent."""
    if not header:
        return 0.0
    with suppress(ValueError):
        return min(max(float(header), 0.0), LONGEST_RETRY_AFTER_S)
    with suppress(ValueError, TypeError, OverflowError):
        return max(email.utils.parsedate_to_datetime(header).timestamp() - time.time(), 0.0)
    return 0.0


def _max_reply_bytes(body: dict[str, Any]) -> int:
    """A reply may be as long as the tokens that were requested need."""
    n, max_tokens = body["n"], body["max_tokens"]
    if not is_count(n) or not is_count(max_tokens):  # `extra` may say anything
        return MAX_REPLY_BYTES
    return min(MAX_REPLY_BYTES, BASE_REPLY_BYTES + BYTES_PER_TOKEN * n * max_tokens)


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer, or the reason why there is none."""

    text: str = ""
    finish_reason: str = ""
    """What the server said: "stop", "length", ...; empty on an error."""
    reasoning: str = ""
    """The thinking of a model whose server separates it from the answer."""
    tokens: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each token, where the server returned them."""
    prompt_tokens: tuple[int, ...] | None = None
    usage: dict[str, int] = field(default_factory=dict)
    """Token counts of the whole request this reply came with."""
    error: str | None = None


def message_of(body: bytes) -> str:
    """The server's own words about an error."""
    text = body[:100_000].decode("utf-8", "replace")
    with suppress(ValueError, RecursionError):
        data = json.loads(body[:100_000])
        message = data.get("error", data) if isinstance(data, dict) else data
        message = message.get("message", message) if isinstance(message, dict) else message
        text = message if isinstance(message, str) else json.dumps(message)
    return text.strip() or "(no message)"


def replies_in(body: bytes) -> list[Completion]:
    """The choices of a chat completion, each part checked; anything unexpected is a `ServerFault`."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ServerFault(f"the reply is no JSON: {body[:10_000].decode('utf-8', 'replace')}") from error
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or not choices:
        raise ServerFault(f"the reply has no choices: {message_of(body)}")
    counts = data.get("usage")
    usage = {k: v for k, v in counts.items() if is_count(v)} if isinstance(counts, dict) else {}
    prompt_tokens = _token_ids(data.get("prompt_token_ids"))
    return [_reply(choice, usage, prompt_tokens) for choice in choices]


def _reply(choice: Any, usage: dict[str, int], prompt_tokens: tuple[int, ...] | None) -> Completion:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise ServerFault("a choice of the reply has no message")
    text, reasoning = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
    if not isinstance(text, str | None) or not isinstance(reasoning, str | None):
        raise ServerFault("a message of the reply is not text")
    tokens, logprobs = _token_ids(choice.get("token_ids")), _logprobs(choice.get("logprobs"))
    if tokens is not None and logprobs is not None and len(tokens) != len(logprobs):
        raise ServerFault(f"the reply has {len(tokens)} token ids and {len(logprobs)} log-probabilities")
    finish = choice.get("finish_reason")
    return Completion(
        text=_whole_characters(text or ""),
        finish_reason=_whole_characters(finish) if isinstance(finish, str) and len(finish) < 100 else "",
        reasoning=_whole_characters(reasoning or ""),
        tokens=tokens,
        logprobs=logprobs,
        prompt_tokens=prompt_tokens,
        usage=usage,
    )


def _token_ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(is_count(item) for item in value):
        raise ServerFault("the token ids of the reply are not a list of whole numbers")
    return tuple(value)


def _logprobs(value: Any) -> tuple[float, ...] | None:
    content = value.get("content") if isinstance(value, dict) else None
    if content is None:
        return None
    items: list[Any] = content if isinstance(content, list) else [None]
    values = [item.get("logprob") if isinstance(item, dict) else None for item in items]
    # Compared, not computed with: a whole number may be longer than any float.
    if not all(isinstance(value, int | float) and -1e30 < value < 0.001 for value in values):
        raise ServerFault("the log-probabilities of the reply are not numbers below zero")
    return tuple(float(value) for value in values if value is not None)


def _whole_characters(text: str) -> str:
    """JSON can hold halves of characters, which no file can: they become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
