"""Whom a fleet asks, when, and for what: counted at the servers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro.models.language import LanguageModel
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling import rollout_server
from oneiro.sampling.completion import ServerFault
from oneiro.sampling.engine import SamplingSettings
from oneiro.sampling.rollout_server import RolloutServer
from oneiro.sampling.settings import FleetSettings
from tests.conftest import make_tiny
from tests.sampling.fake_fleet import FakeServer
from tests.sampling.test_fleet import FIVE, Open, opened, scored

__all__ = ["opened"]
LONG_AGO = 1e12
"""Seconds that no clock has seen yet."""


def paths(server: FakeServer) -> Counter[str]:
    return Counter(path.partition("?")[0] for path in server.requests)


def test_weights_go_to_the_folder_of_the_settings_and_strange_files_there_do_no_harm(
    tiny: LanguageModel, opened: Open, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "version-notes").write_text("not ours")  # no folder: it cannot be removed as one
    fleet, (server,) = opened(tiny, folder=str(shared))
    for step in range(3):
        fleet.at(step)
    assert server.updates == 3 and not (tmp_path / "weights").exists()
    assert sorted(path.name for path in shared.iterdir()) == ["version-000001", "version-000002", "version-notes"]


def test_a_server_that_sleeps_at_first_is_waited_for(tiny: LanguageModel, opened: Open) -> None:
    fleet, (server,) = opened(tiny, patience_s=60.0)
    server.naps = 2
    fleet.at(0)
    assert paths(server)["/health"] == 3 and server.updates == 1


def test_a_server_that_started_anew_gets_the_weights_it_had(tiny: LanguageModel, opened: Open) -> None:
    fleet, (server,) = opened(tiny)
    fleet.at(4)
    server.take(make_tiny(seed=3).model.state_dict())  # as after a restart: there is no word of the policy's weights
    fleet.servers[0].alive = False
    (samples,) = fleet.generate([[3, 4]], 2, FIVE)
    assert server.updates == 2
    for sample, learned in zip(samples, scored(tiny, [3, 4], samples), strict=True):
        assert np.allclose(sample.logprobs, learned, atol=1e-4)


def test_a_server_that_is_left_out_is_not_asked_before_its_time(tiny: LanguageModel, opened: Open) -> None:
    fleet, (first, second) = opened(tiny, "vllm", 2, revive_s=LONG_AGO)
    first.deaf = True
    fleet.at(0)
    fleet.generate([[3]] * 3, 1, FIVE)
    assert paths(first) == {"/health": 1}
    assert paths(second)["/health"] == 1  # one that is there is not asked again either
    assert fleet.metrics() == {"staleness": 0.0, "servers": 1.0} == fleet.metrics()


def test_what_a_server_is_asked_for(tiny: LanguageModel, opened: Open) -> None:
    """Seeds come from the call's own and the prompt's place, one for every attempt."""
    fleet, (server,) = opened(tiny, "vllm", concurrency=1)
    fleet.at(0)
    server.faults = ["", "partial"]
    fleet.generate([[3, 4], [5]], 2, SamplingSettings(max_tokens=3, temperature=0.5, stop=("x",)), seed=7)
    own = [seeds.derive(7, place) for place in (0, 1)]
    asked = [(own[0], 0, [3, 4], 2), (own[1], 0, [5], 2), (own[1], 1, [5], 1)]
    assert server.bodies == [
        {
            "model": "policy",
            "prompt": prompt,
            "n": n,
            "max_tokens": 3,
            "temperature": 0.5,
            "stop": ["x"],
            "ignore_eos": False,
            "seed": seeds.derive(seed, attempt) % 2**31,
            "logprobs": 1,
            "return_token_ids": True,
        }
        for seed, attempt, prompt, n in asked
    ]
    server.bodies.clear()
    (samples,) = fleet.generate([[3]], sampling=FIVE, forced=[None])
    fleet.generate([[3]], 1, FIVE, seed=[11])
    assert len(samples) == 1
    assert [body["seed"] for body in server.bodies] == [
        seeds.derive(seeds.derive(0, 0), 0) % 2**31,
        seeds.derive(11, 0) % 2**31,
    ]
    server.bodies.clear()
    fleet.generate([[3]])  # the settings of a recipe that says nothing
    assert server.bodies[0]["max_tokens"] == 64 and server.bodies[0]["temperature"] == 1.0
    ((short,),) = fleet.generate([[3]], 1, SamplingSettings(max_tokens=1))
    assert len(short.tokens) == 1 and fleet.metrics()["staleness"] == 0.0


def test_sglang_is_asked_for_the_same(tiny: LanguageModel, opened: Open) -> None:
    fleet, (server,) = opened(tiny, "sglang")
    fleet.generate([[3, 4]], 2, SamplingSettings(max_tokens=3, temperature=0.5, stop=("x",)), seed=[7])
    params = {"n": 2, "max_new_tokens": 3, "temperature": 0.5, "stop": ["x"], "ignore_eos": False}
    params["sampling_seed"] = seeds.derive(7, 0) % 2**31
    assert server.bodies == [{"input_ids": [3, 4], "sampling_params": params, "return_logprob": True}]


def test_one_forced_prompt_among_others_is_refused(tiny: LanguageModel, opened: Open) -> None:
    fleet, (server,) = opened(tiny)
    with pytest.raises(OneiroError, match="force"):
        fleet.generate([[3], [4]], 1, FIVE, forced=[None, np.array([1, -1, -1, -1, -1])])
    assert not server.bodies


@pytest.mark.parametrize(("servers", "each", "most"), [(1, 1, [1]), (1, 2, [2]), (2, 2, [2, 2])])
def test_every_server_has_as_much_to_do_as_allowed(
    tiny: LanguageModel, opened: Open, servers: int, each: int, most: list[int]
) -> None:
    fleet, fakes = opened(tiny, "vllm", servers, concurrency=each)
    fleet.at(0)
    for fake in fakes:
        fake.company = each
    fleet.generate([[3]] * 8, 1, FIVE)
    assert [fake.most for fake in fakes] == most and sum(len(fake.bodies) for fake in fakes) == 8
    assert [server.busy for server in fleet.servers] == [0] * servers


def test_the_server_with_least_to_do_is_asked(tiny: LanguageModel, opened: Open) -> None:
    fleet, (first, second) = opened(tiny, "vllm", 2)
    fleet.at(0)
    fleet.servers[0].busy = 1
    for _ in range(3):
        fleet.generate([[3]], 1, FIVE)
    assert not first.bodies and len(second.bodies) == 3
    assert [server.busy for server in fleet.servers] == [1, 0]


def test_as_many_faults_as_retries_are_forgiven_and_each_brings_the_weights_again(
    tiny: LanguageModel, opened: Open
) -> None:
    fleet, (server,) = opened(tiny, "sglang", retries=2)
    fleet.at(0)
    server.faults = ["garbage", "empty"]
    ((sample,),) = fleet.generate([[3]], 1, FIVE)
    assert len(sample.tokens) == 5 and server.updates == 3 and len(server.bodies) == 3
    assert fleet.servers[0].fault == "" and fleet.servers[0].busy == 0


# What a server says ---------------------------------------------------------------------------------------------------


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
    assert (server.version, server.alive, server.busy, server.looked) == (-1, False, 0, float("-inf"))
    assert server.healthy() and not server.healthy() and server.fault == "no"
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
