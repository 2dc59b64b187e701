"""What an OpenAI-compatible server says, read from its JSON. Everything is checked before it is believed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any


class ServerFault(Exception):
    """A request went wrong in a way that another attempt may mend."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


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
