"""A model behind an address plays: against a real HTTP server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest

from oneiro import worlds
from oneiro.agents.policies import ServerPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.reply import write
from oneiro.agents.rollout import attempts, play
from oneiro.episode import FinishReason
from oneiro.errors import OneiroError
from oneiro.sampling.server import ServerConfig


class Host:
    """Answers every request with `message`, or fails where `broken` says so; remembers what it was asked."""

    def __init__(self) -> None:
        self.message: dict[str, str] = {"content": write(["Left"], "a", "b")}
        self.finish = "stop"
        self.broken = lambda number: False
        self.bodies: list[dict[str, Any]] = []
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                host.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                failed = host.broken(len(host.bodies))
                choice = {"message": host.message, "finish_reason": host.finish}
                body = json.dumps({"error": "out of order"} if failed else {"choices": [choice]}).encode()
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
