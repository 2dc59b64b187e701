"""Who is evaluated and how: models in the view they were taught with, servers, scripts; always beside chance."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from oneiro.agents.evaluate import BANDS, AgentEvaluationSettings, evaluate_agent, measure_baselines, unbroken
from oneiro.agents.loading import AgentMetadata, load_agent
from oneiro.agents.reply import write
from oneiro.cli import main
from oneiro.episode import Episode, FinishReason
from oneiro.models.language import LanguageModel
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.server import ServerConfig
from oneiro.sampling.settings import SamplingSettings
from oneiro.worlds import baselines, make
from oneiro.worlds.grid.frozen_lake.world import FrozenLake
from oneiro.worlds.registry import WORLDS, WorldChoice, register
from tests.agents.test_server_policy import Host


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


def taught(language: LanguageModel, where: Path, **world: Any) -> str:
    """A folder of the model; its replies are short, because what it says does not matter here."""
    short = SamplingSettings(max_tokens=8)
    language.metadata = AgentMetadata(world=WorldChoice(**world), sampling=short).model_dump(mode="json")
    language.save(where)
    return str(where)


@pytest.mark.parametrize("variant", ["harder", "grid-vocab", "simple", "action-vocab"])
def test_a_taught_view_goes_along_to_variants_whose_own_settings_stay(
    variant: str, tiny: LanguageModel, tmp_path: Path
) -> None:
    model = taught(tiny, tmp_path, name="sokoban", view="spaced", max_actions=7)
    found = load_agent(model, f"sokoban:{variant}", {}).make_world()
    own = make(f"sokoban:{variant}").config
    assert found.config == own.model_copy(update={"view": "spaced"}) and found.config.max_actions != 7


def test_a_chosen_view_stays_chosen(tiny: LanguageModel, tmp_path: Path) -> None:
    model = taught(tiny, tmp_path, name="sokoban:coordinates", max_actions=7)
    view = make("sokoban:coordinates").config.view
    assert view != "text"
    assert load_agent(model, "sokoban", {}).make_world().config.view == view  # a variant's view is taught too
    assert load_agent(model, "sokoban:harder", {"view": "text"}).make_world().config.view == "text"
    same = load_agent(model, "sokoban:coordinates", {}).make_world().config
    assert (same.view, same.max_actions) == (view, 7)
    assert load_agent(model, "frozen-lake", {}).make_world().config.view == "text"
    spaced = taught(tiny, tmp_path, name="sokoban", view="spaced")
    assert load_agent(spaced, "sokoban:coordinates", {}).make_world().config.view == view


def test_a_model_that_is_no_agent_is_one_clear_line(
    tiny: LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.metadata = {"kind": "text-game", "form": "edits", "sampling": {}}
    tiny.save(tmp_path)
    assert main(["eval", "agent", "--world", "sokoban", "--model", str(tmp_path), "--levels", "1"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "is not an agent" in line and "oneiro eval text-game" in line and "validation" not in line


def rows(path: Path) -> dict[str, dict[str, Any]]:
    return {row["agent"]: row for row in json.loads(path.read_text())["rows"]}


def test_a_server_is_evaluated_from_the_command_line(
    host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host.message = {"content": write(["Right", "Down"], thought="A plain model knows no other form.")}
    out = tmp_path / "table.json"
    arguments = ["--server", f"http://127.0.0.1:{host.http.server_port}/v1", "--server-model", "small"]
    arguments += ["--server-settings", "temperature=0.25", "--dialogue", "max_turns=3", "--levels", "3"]
    world = ["--world", "frozen-lake", "--settings", "frozen_probability=1.0", "--samples", "2"]
    assert main(["eval", "agent", *world, *arguments, "--json", str(out)]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("episodes: ")]
    # 3 levels, 2 attempts: the random policy's and the server's. No other number stands there before.
    assert shown[-1].startswith("episodes: 12/12 ") and all("/12 " in line or "/? " in line for line in shown)
    found = rows(out)
    assert list(found) == ["random", "small", "ceiling"] and found["small"]["success"]["n"] == 3
    assert found["small"]["malformed turns"]["value"] == 0
    # Right and down, three times each at most, on ice without holes: worked out on the levels themselves.
    expected = []
    for seed in range(3):
        game = make("frozen-lake", frozen_probability=1.0)
        game.reset(seed=seed, options={"split": "eval"})
        ends = [game.step(action) for action in ["Right", "Down"] * 3]
        expected.append(any(info["success"] for *_, info in ends))
    assert found["small"]["success"]["value"] == pytest.approx(np.mean(expected))
    assert {body["model"] for body in host.bodies} == {"small"}
    assert {body["temperature"] for body in host.bodies} == {0.25}
    assert 6 <= len(host.bodies) <= 18


class LiveLake(FrozenLake):
    """A lake that everybody uses; notes every episode that begins on it."""

    shared = True
    begun: ClassVar[list[int]] = []
    open: ClassVar[set[int]] = set()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        assert not self.open - {id(self)}, "another episode is under way"
        self.begun.append(seed or 0)
        self.open.add(id(self))
        return super().reset(seed=seed, options=options)

    def peek(self, seed: int, split: str | None) -> dict[str, Any]:
        return super().reset(seed=seed, options={"split": split})[1]

    def close(self) -> None:
        self.open.discard(id(self))


def test_on_shared_sites_only_what_was_asked_for_is_played_one_episode_at_a_time(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oneiro.worlds.registry.WORLDS", dict(WORLDS))  # other tests make every world that is there
    register("live-lake", LiveLake)
    host.message = {"content": write(["Right", "Down"])}
    config = ServerConfig(base_url=f"http://127.0.0.1:{host.http.server_port}/v1", model="small")
    table = evaluate_agent("live-lake", levels=3, samples=1, server=config, dialogue={"max_turns": 2})
    assert ([row[0].value for row in table.rows], len(LiveLake.begun)) == (["small"], 3)
    assert "--policy random gives the row of chance" in table.note
    table = evaluate_agent("live-lake", policy="random", levels=3, samples=1)
    assert ([row[0].value for row in table.rows], len(LiveLake.begun)) == (["random"], 6)


def test_levels_that_a_server_broke_off_are_left_out_and_counted(host: Host) -> None:
    host.broken = lambda number: number == 2
    config = ServerConfig(
        base_url=f"http://127.0.0.1:{host.http.server_port}/v1", model="small", retries=0, concurrency=1
    )
    settings = {"size": 8, "frozen_probability": 1.0}
    found = evaluate_agent("frozen-lake", levels=3, samples=2, settings=settings, server=config)
    assert "1 level left out, broken off by errors" in found.note
    assert [row[1].n for row in found.rows] == [3, 2, 3]
    broken = [Episode([], group=group, finish_reason=FinishReason.ERROR) for group in range(2)]
    with pytest.raises(OneiroError, match="every level was broken off"):
        unbroken(broken)


def test_a_mixture_lies_between_chance_and_the_oracle(tmp_path: Path) -> None:
    found = {}
    for share in ("0", "0.5", "1"):
        out = tmp_path / f"{share}.json"
        arguments = ["--policy", "mixture", "--oracle-share", share, "--levels", "24", "--samples", "2"]
        assert main(["eval", "agent", "--world", "frozen-lake", *arguments, "--json", str(out)]) == 0
        found[share] = rows(out)[f"mixture, oracle {float(share):.0%}"]["success"]["value"]
    assert found["0"] < found["0.5"] < found["1"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--policy", "oracle", "--oracle-share", "0.5"], "--oracle-share belongs to --policy mixture"),
        (["--server", "http://127.0.0.1:1/v1"], "--server URL and --server-model NAME go together"),
        (["--policy", "random", "--server-settings", "seed=1"], "--server-settings belong to --server URL"),
        (["--policy", "random", "--server", "http://127.0.0.1:1/v1"], "either --model DIR_OR_NAME or --policy"),
        (["--server", "nowhere", "--server-model", "m"], "base_url"),
        (["--policy", "mixtur"], "did you mean 'mixture'"),
        (["--policy", "random", "--dialogue", "max_turn=3"], "unknown key 'max_turn'; did you mean 'max_turns'"),
        (
            ["--server", "http://127.0.0.1:1/v1", "--server-model", "m", "--server-settings", "timeout=1"],
            "did you mean 'timeout_s'",
        ),
    ],
)
def test_players_that_do_not_go_together_are_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "agent", "--world", "frozen-lake", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert line in said and "\n" not in said


def test_a_configuration_mostly_out_of_reach_is_announced_once(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--policy", "random", "--levels", "2", "--samples", "1"]
    assert main(["eval", "agent", "--world", "sokoban:harder", *arguments]) == 0
    said = capsys.readouterr().out
    assert said.count("sokoban:harder is mostly out of reach") == 1 and "in 10 actions" in said
    assert main(["eval", "agent", "--world", "sokoban", *arguments]) == 0
    assert "out of reach" not in capsys.readouterr().out


def test_chance_and_ceiling_have_the_budget_that_a_dialogue_leaves(tiny: LanguageModel, tmp_path: Path) -> None:
    """Five cells are empty in a Sudoku: four turns of one action solve none, whatever the world would allow."""
    model = taught(tiny, tmp_path, name="sudoku", clues=11)
    dialogue = {"max_turns": 4, "actions_per_turn": 1}
    found = evaluate_agent("sudoku", model, levels=2, samples=1, dialogue=dialogue)
    assert [row[1].value for row in found.rows if row[0].value in ("random", "ceiling")] == [0.0, 0.0]
    assert "within 4 actions" in found.note
    enough = evaluate_agent("sudoku", model, levels=2, samples=1, dialogue={**dialogue, "max_turns": 5})
    assert [row[1].value for row in enough.rows if row[0].value == "ceiling"] == [1.0]


def test_a_policy_that_nobody_knows_is_refused_in_python_too() -> None:
    with pytest.raises(OneiroError, match="no policy called 'orcale'; did you mean 'oracle'"):
        evaluate_agent("frozen-lake", policy="orcale", levels=2)


def test_an_oracle_that_is_not_optimal_is_called_what_it_is() -> None:
    found = evaluate_agent("2048:3x3", policy="oracle", levels=2, samples=1)
    assert [row[0].value for row in found.rows] == ["random", "oracle"]
    assert "the oracle is a player that looks 2 moves ahead; no proven ceiling" in found.note
    assert "the oracle is" not in evaluate_agent("bandit", policy="oracle", levels=2, samples=1).note


def test_chance_and_ceiling_are_told_by_length_too() -> None:
    settings = AgentEvaluationSettings(levels=120, samples=3)
    found = measure_baselines("sokoban:larger", {"max_actions": 8}, settings)
    random, best = found.random_lengths(), found.ceiling_lengths()
    assert random is not None and best is not None and (random[0], best[0]) == ("random", "ceiling")
    world = make("sokoban:larger", max_actions=8)
    chance = baselines.random_success("sokoban:larger", 120, 3, settings={"max_actions": 8})
    for place, (low, high) in enumerate(BANDS, start=1):
        lengths = [world.reset(seed=seed, options={"split": "eval"})[1]["optimum"] for seed in range(120)]
        band = [level for level, length in enumerate(lengths) if low <= length <= high]
        expected = np.mean([chance[level].mean() for level in band]) if band else None
        assert random[place].value == (None if expected is None else pytest.approx(expected))  # type: ignore[union-attr]
        # A level is solvable in eight moves exactly if its shortest solution has no more.
        solvable = np.mean([lengths[level] <= 8 for level in band]) if band else None
        assert best[place].value == (None if solvable is None else pytest.approx(solvable))  # type: ignore[union-attr]
    assert any(high < math.inf and random[place].value for place, (_, high) in enumerate(BANDS, start=1))  # type: ignore[union-attr]
    assert measure_baselines("bandit", {}, AgentEvaluationSettings(levels=4, samples=1)).random_lengths() is None


def test_a_model_that_nobody_taught_is_asked_for_thoughts_and_an_answer(tiny: LanguageModel, tmp_path: Path) -> None:
    plain = load_agent(str(tiny.save(tmp_path / "plain")), "frozen-lake", {})
    for dialogue in (plain.dialogue, load_agent(None, "frozen-lake", {}).dialogue):
        assert dialogue.form == "<think>[your thoughts]</think><answer>[action] || [action]</answer>"
