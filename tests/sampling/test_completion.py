"""What a server's JSON is read as, and which of it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oneiro.sampling.completion import Completion, ServerFault, message_of, replies_in


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
