"""The environments as worlds of Oneiro: names, errors, commands, and many episodes while a policy answers."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.rollouts import Recorder
from oneiro import cli, worlds
from oneiro.agents.game import Game, step_many
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import attempts, play
from oneiro.episode import Sample, describe_errors
from oneiro.report.episodes import record
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import World, WorldLost, draw_level, level_key
from oneiro.worlds.registry import WorldChoice
from oneiro_web import base
from oneiro_web.browsers.base import BrowserDied
from oneiro_web.errors import WebError
from oneiro_web.plugin import WebWorld
from oneiro_web.seeds import derive
from oneiro_web.templates.registry import TEMPLATES
from web.tests.containers import TASKS, Container, base_urls

PLAIN = DialogueSettings(context="actions", think=False, world_model=False, max_turns=4, actions_per_turn=1)


class Recorded:
    """Says what was said before."""

    reads_worlds = False

    def __init__(self, said: dict[int, str]) -> None:
        self.said, self.sizes = said, list[int]()

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        return [Sample.of_text(self.said[turn.seed]) for turn in turns]

    def answer_each(self, turns: Sequence[Game], seeds: Sequence[int]) -> list[Sample]:
        self.sizes.append(len(turns))
        return self.answer(turns, 0)


@pytest.mark.usefixtures("chromium")
def test_episodes_in_chromium_are_those_of_the_text_browser() -> None:
    text, real = (WorldChoice(name="web", sites=("map",), max_actions=3, browser=b) for b in ("text", "chromium"))
    planned, recorder = attempts(3, 1, "train", 0), Recorder(0.9)
    expected = play(text.maker(), planned, recorder, PLAIN)
    policy = Recorded(recorder.said)
    found = play(real.maker(), planned, policy, PLAIN, concurrency=3)
    assert describe_errors(found) is None
    assert [record(episode) for episode in found] == [record(episode) for episode in expected]
    assert policy.sizes[:2] == [2, 1]


@pytest.mark.usefixtures("chromium")
def test_the_page_after_each_turn_is_kept_as_a_small_picture_where_it_is_asked_for() -> None:
    world = WorldChoice(name="web", sites=("map",), max_actions=2, browser="chromium", screenshots=True)
    (episode,) = play(world.maker(), attempts(1, 1, "train", 0), Recorder(0.9), PLAIN)
    pictures = [base64.b64decode(turn["picture"]) for turn in record(episode)["turns"]]
    assert pictures and all(picture.startswith(b"\xff\xd8\xff") and len(picture) < 60_000 for picture in pictures)
    with_text = WorldChoice(name="web", sites=("map",), max_actions=2, screenshots=True)
    (plain,) = play(with_text.maker(), attempts(1, 1, "train", 0), Recorder(0.9), PLAIN)
    assert all("picture" not in turn for turn in record(plain)["turns"])


def test_an_installed_package_brings_its_worlds_with_their_variants() -> None:
    world = worlds.make("web:map", view="html")
    assert isinstance(world, World) and isinstance(world, WebWorld)
    assert (
        world.config.sites == ("map",) and world.has_oracle and world.oracle_is == "the script of the task's template"
    )
    assert not worlds.make("webarena-infinity").has_oracle
    assert {"web", "web:unseen", "miniwob", "webarena-infinity:easy"} <= set(worlds.names(variants=True))


def test_errors_are_oneiros_own() -> None:
    """The command line prints one line for the one, and rollouts lose an episode by the other."""
    assert issubclass(WebError, OneiroError) and not issubclass(WebError, WorldLost)
    assert issubclass(BrowserDied, WorldLost)


def test_seeds_and_levels_are_those_of_oneiro() -> None:
    """Both sides have their own copy: tasks drawn by either are the same."""
    assert derive("web", 3, "level", 0) == seeds.derive("web", 3, "level", 0) == 7430973951903599783
    assert base.level_key("a", "b") == level_key("a", "b")
    drawn = [
        draw("web", 5, "eval", lambda rng: int(rng.integers(1000)), lambda level: level_key(str(level)))
        for draw in (base.draw_level, draw_level)
    ]
    assert drawn[0] == drawn[1]


def test_many_worlds_are_stepped_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The class's own way for many holds for the world too, which changes neither `step` nor `step_many`."""
    calls = []
    own = WebWorld.step_many
    monkeypatch.setattr("oneiro_web.env.WebEnv.step_many", staticmethod(lambda *a: calls.append(a) or own(*a)))
    pair = [WebWorld(), WebWorld()]
    for world in pair:
        world.reset(seed=1)
    first, second = step_many(pair, ["none", "none"])
    assert len(calls) == 1 and first == second


def test_templates_are_validated_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "table.json"
    command = ["eval", "web-tasks", "--site", "map", "--tasks", "1", "--json", str(out)]
    assert cli.main([*command, "--agent", "oracle"]) == 0
    rows = json.loads(out.read_text())["rows"]
    count = sum(template.site == "map" for template in TEMPLATES.values())
    assert rows[0]["agent"] == "oracle" and rows[0]["all"] == f"{count} / {count}"
    assert cli.main(["eval", "web-tasks", "--agent", "oracel"]) == 2
    assert "did you mean 'oracle'" in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_line_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.main(["web", "serve", "--port", str(port)]) == 2
        said = f"cannot listen on 127.0.0.1:{port} (Address already in use); choose another --port\n"
        assert capsys.readouterr() == ("", said)


def test_containers_are_evaluated_by_the_command_of_the_docs(
    containers: dict[str, Container], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [{**TASKS[name][0], "task_id": name} for name in ("must_include", "url_match")]
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    bases = ", ".join(f"{site}: {url}" for site, url in base_urls(containers).items())
    settings = [f"task_file={tmp_path}/tasks.json", f"base_urls={{{bases}}}", f"storage={tmp_path}", "max_actions=2"]
    chosen = [part for setting in settings for part in ("--settings", setting)]
    played = ["--policy", "random", "--levels", "165", "--samples", "1", "--json", str(tmp_path / "table.json")]
    assert cli.main(["eval", "agent", "--world", "web", *chosen, *played]) == 0
    (row,) = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert (row["agent"], row["success"]["n"]) == ("random", 2)
    assert cli.main(["eval", "agent", "--world", "web", *chosen[:2], *played]) == 2
    assert "our own sites lack it: give addresses in base_urls" in capsys.readouterr().err
