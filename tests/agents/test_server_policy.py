"""A model behind an address plays: against a real HTTP server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest

from oneiro import worlds
from oneiro.agents.policies import ServerPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.reply import write
from oneiro.agents.rollout import attempts, play
from oneiro.episode import FinishReason
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.loop import RlSettings
from oneiro.learning.update import learn
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.sampling.server import ServerConfig


class Host:
    """Answers every request with `message`, or fails where `broken` says so; remembers what it was asked."""

    def __init__(self) -> None:
        self.message: dict[str, str] = {"content": write(["Left"], "a", "b")}
        self.finish = "stop"
        self.sampled: Callable[[dict[str, Any]], tuple[dict[str, Any], list[int]]] | None = None
        self.broken = lambda number: False
        self.bodies: list[dict[str, Any]] = []
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                host.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                failed = host.broken(len(host.bodies))
                choice: dict[str, Any] = {"message": host.message, "finish_reason": host.finish}
                found: dict[str, Any] = {"choices": [choice]}
                if host.sampled is not None:
                    more, found["prompt_token_ids"] = host.sampled(host.bodies[-1])
                    choice |= more
                body = json.dumps({"error": "out of order"} if failed else found).encode()
                self.send_response(500 if failed else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.http.shutdown()
        self.http.server_close()

    def policy(self, **settings: Any) -> ServerPolicy:
        address = f"http://127.0.0.1:{self.http.server_port}/v1"
        return ServerPolicy(ServerConfig(base_url=address, model="m", retries=0, **settings))


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


def games(policy: ServerPolicy, levels: int = 2, seed: int = 0) -> list[Any]:
    settings = DialogueSettings(max_turns=2, actions_per_turn=1)
    return play(
        lambda: worlds.make("frozen-lake", size=8, frozen_probability=1.0),
        attempts(levels, 1, "train", 0),
        policy,
        settings,
        seed=seed,
    )


def test_a_server_is_told_the_whole_dialogue_and_its_answers_are_played(host: Host) -> None:
    episodes = games(host.policy())
    assert [[a["action"] for t in e.info["turns"] for a in t["actions"]] for e in episodes] == [["Left"] * 2] * 2
    assert [m["role"] for m in host.bodies[-1]["messages"]] == ["system", "user", "assistant", "user"]
    assert all(not episode.rows for episode in episodes)


def test_the_same_question_in_another_batch_has_another_seed(host: Host) -> None:
    games(host.policy(seed=5), seed=1)
    games(host.policy(seed=5), seed=2)
    games(host.policy(seed=5), seed=1)
    found = [body["seed"] for body in host.bodies]
    assert sorted(found[:4]) == sorted(found[8:]) and len(set(found)) == 8
    games(host.policy(seed=None))
    assert "seed" not in host.bodies[-1]


def test_thoughts_that_the_server_keeps_apart_go_back_where_they_were(host: Host) -> None:
    host.message = {"content": "<answer>Up</answer>", "reasoning_content": "<observation>a</observation>hm"}
    episode = games(host.policy(), levels=1)[0]
    assert episode.info["turns"][0]["reply"] == "<think><observation>a</observation>hm</think><answer>Up</answer>"


def test_one_failed_request_ends_its_episode_and_a_dead_server_ends_the_run(host: Host) -> None:
    host.broken = lambda number: number == 1
    stops = [episode.finish_reason for episode in games(host.policy(concurrency=1))]
    assert stops == [FinishReason.ERROR, FinishReason.TURNS]
    host.broken = lambda number: True
    with pytest.raises(OneiroError, match="answered none of 2 requests: HTTP 500: out of order"):
        games(host.policy())


def test_replies_with_token_ids_can_be_trained_on_like_our_own(host: Host, tiny: LanguageModel) -> None:
    """The server is our own engine behind HTTP: the learner must find the log-probabilities that it sent."""
    engine, chat, lock = Engine(tiny, 4), ChatFormat(tiny.tokenizer), threading.Lock()

    def sampled(body: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        prompt = chat.whole(body["messages"])
        with lock:
            ((sample,),) = engine.generate([prompt], 1, SamplingSettings(max_tokens=12), seed=body["seed"])
        logprobs = {"content": [{"logprob": float(value)} for value in sample.logprobs]}
        text = tiny.decode(sample.tokens)
        found = {"message": {"content": text}, "token_ids": sample.tokens.tolist(), "logprobs": logprobs}
        return found, prompt.tolist()

    host.sampled = sampled
    episodes = games(host.policy(token_ids=True, max_tokens=12), levels=3)
    assert [len(episode.rows) for episode in episodes] == [2, 2, 2]  # a row a turn: the server renders each anew
    assert all(len(row.segments) == 2 and row.sampled.any() for episode in episodes for row in episode.rows)
    for number, episode in enumerate(episodes):
        episode.group, episode.rewards = 0, [float(number), 0.0]
    learners = {"policy": Learner(tiny.backbone, LearnerSettings(), 1)}
    statistics = learn(episodes, RlSettings(), learners, None, 0)
    assert statistics["mismatch"] < 1e-4 and statistics["grad_norm"] > 0


def test_replies_without_ids_are_played_as_text_and_a_cooler_sampler_is_refused(host: Host) -> None:
    host.sampled = lambda body: ({"token_ids": [1, 2]}, [1])  # no log-probabilities
    assert all(not episode.rows for episode in games(host.policy(token_ids=True)))
    for settings in ({"temperature": 0.7}, {"top_p": 0.9}, {"extra": {"top_k": 5}}):
        with pytest.raises(OneiroError, match="temperature=1 and top_p=1"):
            host.policy(token_ids=True, **settings)
