"""Rollouts by servers: exact, in any weather."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro.episode import Episode, Row, Sample, given
from oneiro.learning.algorithms import Grpo
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.loop import Callbacks, reinforce
from oneiro.learning.settings import CorrectionSettings
from oneiro.models.language import LanguageModel, LoraSettings, with_lora
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling import fleet as fleets
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.sampling.fleet import Fleet, RolloutServer
from oneiro.sampling.http import ServerFault
from oneiro.sampling.settings import FleetSettings
from tests.conftest import make_tiny
from tests.learning.test_loop import settings
from tests.sampling.fake_fleet import FakeServer

FIVE = SamplingSettings(max_tokens=5, ignore_eos=True)
Open = Callable[..., tuple[Fleet, list[FakeServer]]]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setattr(fleets, "FIRST_WAIT_S", 0.01)
    with ExitStack() as stack:

        def open_fleet(
            language: LanguageModel, kind: str = "sglang", count: int = 1, **how: Any
        ) -> tuple[Fleet, list[FakeServer]]:
            servers = [stack.enter_context(FakeServer(make_tiny(seed=9), kind)) for _ in range(count)]
            chosen: dict[str, Any] = {"timeout_s": 60.0, "revive_s": 0.0, "patience_s": 60.0, "kind": kind} | how
            fleet = Fleet(language, FleetSettings(urls=tuple(s.url for s in servers), **chosen), tmp_path / "weights")
            return fleet, servers

        yield open_fleet


def scored(language: LanguageModel, prompt: list[int], samples: list[Sample]) -> list[np.ndarray]:
    rows = [Row([given(prompt), *sample.segments()]) for sample in samples]
    learned, _ = Learner(language.backbone, LearnerSettings(), 1).logprobs([Example.of(row) for row in rows])
    return [found[row.sampled] for found, row in zip(learned, rows, strict=True)]


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_servers_sample_with_the_policys_weights_and_say_of_which_version(
    tiny: LanguageModel, kind: str, opened: Open
) -> None:
    fleet, servers = opened(tiny, kind, 2)
    fleet.at(3)
    found = fleet.generate([[3, 4, 5], [6, 7]], 4, FIVE, seed=1)
    assert [len(samples) for samples in found] == [4, 4] and all(len(s.tokens) == 5 for group in found for s in group)
    for prompt, samples in zip([[3, 4, 5], [6, 7]], found, strict=True):
        for sample, learned in zip(samples, scored(tiny, prompt, samples), strict=True):
            assert np.allclose(sample.logprobs, learned, atol=1e-4)
            assert sample.versions is not None and (sample.versions == 3).all() and len(sample.versions) == 5
            assert (sample.segments()[0].versions == 3).all()  # type: ignore[union-attr]
    assert fleet.metrics() == {"staleness": 0.0, "servers": 2.0} and [s.updates for s in servers] == [1, 1]
    if kind == "vllm":
        assert servers[0].requests[1:4] == ["/pause?mode=wait", "/collective_rpc", "/resume"]


def test_weights_are_sent_as_often_as_staleness_asks_for(tiny: LanguageModel, opened: Open, tmp_path: Path) -> None:
    fleet, (server,) = opened(tiny, staleness=2)
    lags = []
    for step in range(7):
        fleet.at(step)
        fleet.generate([[3]], 1, FIVE)
        lags.append(fleet.metrics()["staleness"])
    assert lags == [0, 1, 2, 0, 1, 2, 0] and server.updates == 3
    assert len(list((tmp_path / "weights").glob("version-*"))) == 2
    fleet.at(2)  # the run went back to a checkpoint
    assert fleet.version == 2 and server.updates == 4


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("vllm", "die"),
        ("vllm", "slow"),
        ("vllm", "garbage"),
        ("vllm", "half"),
        ("vllm", "abort"),
        ("vllm", "duplicate"),
        ("sglang", "stale"),
        ("sglang", "partial"),
        ("sglang", "empty"),
        pytest.param("vllm", "short", marks=pytest.mark.thorough),
        pytest.param("vllm", "partial", marks=pytest.mark.thorough),
        pytest.param("vllm", "empty", marks=pytest.mark.thorough),
        pytest.param("sglang", "garbage", marks=pytest.mark.thorough),
    ],
)
def test_a_server_that_misbehaves_costs_no_sample(tiny: LanguageModel, kind: str, fault: str, opened: Open) -> None:
    fleet, (first, _) = opened(tiny, kind, 2, **({"timeout_s": 2.0} if fault == "slow" else {}))
    first.faults = [fault, fault]
    fleet.at(1)
    for seed in range(2):
        found = fleet.generate([[3, 4], [5], [6, 7, 8]], 3, FIVE, seed=seed)
        assert [len(samples) for samples in found] == [3, 3, 3]
        for prompt, samples in zip([[3, 4], [5], [6, 7, 8]], found, strict=True):
            tokens = {tuple(sample.tokens.tolist()) for sample in samples}
            assert len(tokens) > 1  # no sample counts twice
            for sample, learned in zip(samples, scored(tiny, prompt, samples), strict=True):
                assert np.allclose(sample.logprobs, learned, atol=1e-4)
                assert sample.versions is not None and (sample.versions == 1).all()
    assert len(first.faults) < 2  # it was asked, and one that died not again


def test_a_dead_server_is_left_out_and_comes_back_with_new_weights(tiny: LanguageModel, opened: Open) -> None:
    fleet, (first, second) = opened(tiny, "vllm", 2)
    fleet.at(0)
    first.deaf = True
    fleet.at(1)
    fleet.generate([[3]] * 4, 1, FIVE)
    assert fleet.metrics()["servers"] == 1 and first.updates == 1 and second.updates == 2
    first.deaf = False
    fleet.generate([[3]] * 4, 1, FIVE)
    assert fleet.metrics()["servers"] == 2 and first.updates == 2
    assert any("/v1/completions" in path for path in first.requests)


def test_when_no_server_answers_the_run_ends_with_one_line(tiny: LanguageModel, opened: Open) -> None:
    fleet, (server,) = opened(tiny, "vllm", patience_s=0.3)
    server.deaf = True
    with pytest.raises(OneiroError, match=r"no rollout server answered within 0 s \(http://127"):
        fleet.at(0)


@pytest.mark.parametrize(
    ("tokens", "logprobs", "said"),
    [
        ([1, 330], [-1.0, -1.0], "tokens"),
        ([-1, 1], [-1.0, -1.0], "tokens"),
        ([1, True], [-1.0, -1.0], "tokens"),
        ([1, "2"], [-1.0, -1.0], "tokens"),
        ([], [], "tokens"),
        ([1] * 6, [-1.0] * 6, "tokens"),
        (None, [-1.0], "tokens"),
        ([1, 2], [-1.0, None], "log-prob"),
        ([1, 2], [-1.0, 0.1], "log-prob"),
        ([1, 2], [-1.0, float("-inf")], "log-prob"),
        ([1, 2], [-1.0, float("nan")], "log-prob"),
        ([1, 2], [-1.0], "log-prob"),
        ([1, 2], {"0": -1.0}, "log-prob"),
    ],
)
def test_one_wrong_entry_among_right_ones_is_a_fault(tokens: Any, logprobs: Any, said: str) -> None:
    server = RolloutServer("http://here", FleetSettings(urls=("http://here",)), vocabulary=330)
    assert server._sample([0, 329], [-1.0, 0.0], "stop", 3, FIVE).tokens.tolist() == [0, 329]
    with pytest.raises(ServerFault, match=said):
        server._sample(tokens, logprobs, "stop", 3, FIVE)


def test_a_server_that_refuses_new_weights_is_none(tiny: LanguageModel, opened: Open) -> None:
    fleet, (server,) = opened(tiny, "sglang", patience_s=0.3)
    server.refuses = True
    with pytest.raises(OneiroError, match=r"no rollout server answered .*new weights were refused: .*no room"):
        fleet.at(0)


def test_who_asks_for_samples_first_brings_the_weights_along(tiny: LanguageModel, opened: Open) -> None:
    fleet, (server,) = opened(tiny)
    ((sample,),) = fleet.generate([[3, 4]], 1, FIVE)
    assert server.updates == 1 and sample.versions is not None and (sample.versions == 0).all()
    assert np.allclose(sample.logprobs, scored(tiny, [3, 4], [sample])[0], atol=1e-4)


def test_a_server_that_fell_behind_gets_the_weights_before_it_samples(tiny: LanguageModel, opened: Open) -> None:
    fleet, (server,) = opened(tiny, "vllm", total_s=120.0)
    fleet.at(1)
    fleet.servers[0].version = 0
    (samples,) = fleet.generate([[3]], 2, FIVE)
    assert len(samples) == 2 and server.updates == 2
    assert all((sample.versions == 1).all() for sample in samples if sample.versions is not None)


def test_what_keeps_failing_ends_with_the_last_fault_and_asks_for_nothing_more(
    tiny: LanguageModel, opened: Open
) -> None:
    fleet, (server,) = opened(tiny, "vllm", retries=0, concurrency=1)
    fleet.at(0)
    server.faults = ["abort"]
    with pytest.raises(OneiroError, match=r"failed 1 times; the last, http://.*: it gave no whole sample"):
        fleet.generate([[3]] * 20, 1, FIVE)
    assert sum(path == "/v1/completions" for path in server.requests) < 20


def test_a_server_that_dies_in_the_middle_and_one_that_takes_too_long(tiny: LanguageModel, opened: Open) -> None:
    fleet, (server,) = opened(tiny, "vllm", patience_s=0.3, total_s=120.0, retries=9)
    fleet.at(0)
    server.faults = ["die"]
    with pytest.raises(OneiroError, match="no rollout server answered within 0 s"):
        fleet.generate([[3]], 1, FIVE)
    fleet, _ = opened(tiny, "vllm", total_s=1e-9)
    fleet.at(0)
    with pytest.raises(OneiroError, match=r"rollout servers took longer than 0 s \(rl\.servers\.total_s\)"):
        fleet.generate([[3]], 1, FIVE)


def test_what_servers_cannot_do_is_refused(tiny: LanguageModel, opened: Open) -> None:
    fleet, _ = opened(tiny)
    with pytest.raises(OneiroError, match="top_p"):
        fleet.generate([[3]], 1, FIVE.model_copy(update={"top_p": 0.9}))
    with pytest.raises(OneiroError, match="force"):
        fleet.generate([[3]], 1, FIVE, forced=[np.array([1, -1, -1, -1, -1])])
    with pytest.raises(OneiroError, match="merge_lora"):
        opened(with_lora(make_tiny(), LoraSettings(rank=2)))
    with pytest.raises(ValueError, match="no address"):
        FleetSettings(urls=("node:8000/v1",))


def learned(engine: Engine, language: LanguageModel, folder: Path, **more: Any) -> list[dict[str, float]]:
    """GRPO whose replies earn the share of odd tokens."""
    logged: list[dict[str, float]] = []

    def play(step: int) -> list[Episode]:
        if isinstance(engine, Fleet):
            engine.at(step)
        sampled = engine.generate([[3 + g, 4, 5] for g in range(4)], 6, FIVE, seed=step)
        return [
            Episode([Row([given([3 + g, 4, 5]), *s.segments()])], [float((s.tokens % 2).mean())], group=g)
            for g in range(4)
            for s in sampled[g]
        ]

    how = settings(Grpo(), 15, **more).model_copy(update={"checkpoint_every": 100})
    reinforce(language, how, folder, 0, Callbacks(play, lambda step, values: logged.append(values)))
    return logged


def first(logged: list[dict[str, float]]) -> float:
    return float(np.mean([row["reward"] for row in logged[:3]]))


def last(logged: list[dict[str, float]]) -> float:
    return float(np.mean([row["reward"] for row in logged[-5:]]))


def test_a_policy_learns_from_servers_as_in_process(tmp_path: Path, opened: Open) -> None:
    alone = make_tiny()
    own = learned(Engine(alone), alone, tmp_path / "own")
    away = make_tiny()
    served = learned(opened(away, "vllm", 2)[0], away, tmp_path / "served")
    late = make_tiny()
    stale = learned(
        opened(late, "sglang", 1, staleness=2)[0], late, tmp_path / "late", correction=CorrectionSettings(name="tis")
    )
    gained = [last(logged) - first(logged) for logged in (own, served, stale)]
    assert min(gained) > 0.1 and last(served) > last(own) - 0.15, gained
    # Steps in which all replies scored alike have no update, and nothing to compare.
    assert all(row.get("mismatch_kl", 0.0) < 1e-6 for row in [*served, *stale[::3]])
    lagging = [row["mismatch_kl"] for place, row in enumerate(stale) if place % 3 and "mismatch_kl" in row]
    assert len(lagging) > 5 and min(lagging) > 1e-5


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
    monkeypatch.setattr(fleets, "ask", answers)
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
