"""What one rollout server is sent and what of its replies is believed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oneiro.sampling import rollout_server
from oneiro.sampling.completion import ServerFault
from oneiro.sampling.rollout_server import RolloutServer
from oneiro.sampling.settings import FleetSettings
from tests.sampling.test_fleet import FIVE


class Answers:
    """Answers in the place of a server, in order; what was asked is kept."""

    def __init__(self, *replies: Any) -> None:
        self.replies, self.asked = list(replies), list[tuple[str, Any, float]]()

    def __call__(self, url: str, body: Any = None, seconds: float = 60.0) -> Any:
        self.asked.append((url, body, seconds))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def asked(monkeypatch: pytest.MonkeyPatch, kind: str, *replies: Any) -> tuple[RolloutServer, Answers]:
    answers = Answers(*replies)
    monkeypatch.setattr(rollout_server, "ask", answers)
    settings = FleetSettings(urls=("http://here",), kind=kind, timeout_s=7.0)  # type: ignore[arg-type]
    return RolloutServer("http://here", settings, vocabulary=330), answers


def said(finish: Any = "stop", version: Any = None, token: int = 5) -> dict[str, Any]:
    info = {"output_token_logprobs": [[-1.0, token]], "finish_reason": {"type": finish}}
    return {"meta_info": info | ({} if version is None else {"weight_version": version})}


def test_a_server_is_unknown_until_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    server, answers = asked(monkeypatch, "vllm", {}, ServerFault("no"))
    assert (server.version, server.alive, server.busy, server.checked_at) == (-1, False, 0, float("-inf"))
    assert server.is_healthy() and not server.is_healthy() and server.fault == "no"
    assert answers.asked[0] == ("http://here/health", None, 5.0)


def test_new_weights_are_loaded_between_requests_and_requests_go_on_whatever_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, answers = asked(monkeypatch, "vllm", {}, ServerFault("no such folder"), {})
    with pytest.raises(ServerFault, match="no such folder"):
        server.update("/weights", 3)
    rpc = {"method": "reload_weights", "kwargs": {"weights_path": "/weights"}, "timeout": 7.0}
    assert answers.asked == [
        ("http://here/pause?mode=wait", {}, 7.0),
        ("http://here/collective_rpc", rpc, 7.0),
        ("http://here/resume", {}, 7.0),
    ]
    assert server.version == -1
    server, answers = asked(monkeypatch, "sglang", {"success": True})
    server.update("/weights", 3)
    body = {"model_path": "/weights", "weight_version": "3", "abort_all_requests": False}
    assert answers.asked == [("http://here/update_weights_from_disk", body, 7.0)] and server.version == 3


@pytest.mark.parametrize("reply", [[], None, "ok", {}, {"success": False}, {"success": 1}])
def test_weights_that_were_not_taken_are_a_fault(monkeypatch: pytest.MonkeyPatch, reply: Any) -> None:
    server, _ = asked(monkeypatch, "sglang", reply)
    with pytest.raises(ServerFault, match="refused"):
        server.update("/weights", 3)
    assert server.version == -1


def test_samples_that_were_broken_off_are_left_out_and_more_than_asked_for_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replies = [said("abort", token=1), said(token=2), said("length", token=3), said("error", token=4), said(token=6)]
    server, answers = asked(monkeypatch, "sglang", replies, said("aborted"), said(token=7))
    found = server.sample([3], 4, FIVE, 0)
    assert [(s.tokens.tolist(), s.finish_reason.value) for s in found] == [([2], "token"), ([3], "length")]
    assert server.sample([3], 1, FIVE, 0) == [] and answers.asked[0][0] == "http://here/generate"
    (alone,) = server.sample([3], 1, FIVE, 0)  # one sample may come without a list
    assert alone.tokens.tolist() == [7] and alone.versions is not None and alone.versions.tolist() == [-1]
    assert not alone.forced.any() and alone.forced.dtype == bool and alone.logprobs.dtype == np.float32


@pytest.mark.parametrize(("told", "known"), [("2", 2), ("base", -1), (2, 2), ("-7", -1)])
def test_weights_of_another_version_are_a_fault_that_is_remembered(
    monkeypatch: pytest.MonkeyPatch, told: Any, known: int
) -> None:
    server, _ = asked(monkeypatch, "sglang", said(version=told), said(version="3"), said())
    server.version = 3
    with pytest.raises(ServerFault, match=f"weights of version {told}, not 3"):
        server.sample([3], 1, FIVE, 0)
    assert server.version == known
    server.version = 3
    for _ in range(2):  # the version that was asked for, and none at all
        (sample,) = server.sample([3], 1, FIVE, 0)
        assert sample.versions is not None and sample.versions.tolist() == [3]


@pytest.mark.parametrize(
    "reply",
    [
        [1],
        "text",
        {"meta_info": None},
        {"meta_info": {}},
        {"meta_info": {"output_token_logprobs": {}}},
        {"meta_info": {"output_token_logprobs": [[-1.0, 5], [-1.0]]}},
        {"meta_info": {"output_token_logprobs": [[-1.0, 5], "ab"]}},
        {"meta_info": {"output_token_logprobs": [[-1.0, 5], None]}},
    ],
)
def test_sglang_replies_of_another_form_are_faults(monkeypatch: pytest.MonkeyPatch, reply: Any) -> None:
    server, _ = asked(monkeypatch, "sglang", reply)
    with pytest.raises(ServerFault, match="the reply has no"):
        server.sample([3], 1, FIVE, 0)


@pytest.mark.parametrize(
    "reply", [[], "text", {}, {"choices": None}, {"choices": {"0": {}}}, {"choices": [{"token_ids": [5]}, 5]}]
)
def test_vllm_replies_of_another_form_are_faults(monkeypatch: pytest.MonkeyPatch, reply: Any) -> None:
    server, _ = asked(monkeypatch, "vllm", reply)
    with pytest.raises(ServerFault, match="the reply has no choices"):
        server.sample([3], 2, FIVE, 0)


def test_log_probabilities_lie_within_bounds_and_rounding() -> None:
    server = RolloutServer("http://here", FleetSettings(urls=("http://here",)), vocabulary=330)
    found = server._sample([1, 2, 3], [-9e29, 0.0009, 0], "length", 3, FIVE)
    assert found.logprobs.tolist() == pytest.approx([-9e29, 0.0009, 0.0])
    assert found.finish_reason.value == "length" and found.params.temperature == FIVE.temperature
    for wrong in (-1e30, 0.001, -1.5e30, 0.0015):
        with pytest.raises(ServerFault, match="log-prob"):
            server._sample([1, 2], [-1.0, wrong], "length", 3, FIVE)


def test_choices_of_one_index_count_once_and_those_without_all(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = [
        {"token_ids": [token], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "stop"} for token in (5, 6, 7)
    ]
    server, _ = asked(
        monkeypatch, "vllm", {"choices": choices}, {"choices": [choice | {"index": 1} for choice in choices]}
    )
    assert [sample.tokens.tolist() for sample in server.sample([3], 3, FIVE, 0)] == [[5], [6], [7]]
    assert [sample.tokens.tolist() for sample in server.sample([3], 3, FIVE, 0)] == [[7]]
    server, _ = asked(monkeypatch, "vllm", {"choices": [{"token_ids": [5], "logprobs": [-1.0]}]})
    with pytest.raises(ServerFault, match="without a log-probability"):
        server.sample([3], 1, FIVE, 0)
