"""What all play together knows: values worked by hand, the truth of a whole lake, and which turns are then learned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oneiro
from oneiro import worlds
from oneiro.agents.hindsight import Hindsight, best_known
from oneiro.agents.policies import Explorer, ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.reply import write
from oneiro.agents.rollout import attempts, play
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.recipe import load
from oneiro.report.episodes import record
from oneiro.rundir.records import read_lines
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json
from oneiro.systems.spa.data import rows_of
from oneiro.systems.spa.recipe import VARIANTS

LAKE = {"size": 4, "success_rate": 1.0, "max_actions": 30}


def attempt(stop: str, *way: str) -> dict[str, Any]:
    """`attempt("goal", "a", "right", "b")`: states and actions by turns, the last one a state."""
    turns = [
        {"state": s, "actions": action.split(), "next_state": after, "message": s, "reply": write(action.split(), s, s)}
        for s, action, after in zip(way[::2], way[1::2], way[2::2], strict=False)
    ]
    return {"success": stop == "goal", "finish_reason": stop, "turns": turns, "seed": 0}


def test_the_best_way_is_put_together_from_several_attempts() -> None:
    found = best_known(
        [
            attempt("goal", "a", "down", "b", "right", "home"),
            attempt("budget", "a", "right", "c", "down", "b"),  # cut short where another went on
            attempt("failed", "c", "right", "hole"),
            attempt("budget", "e", "up", "f"),  # nothing is known of these
        ]
    )
    assert found == {("a", ("down",)), ("b", ("right",)), ("c", ("down",))}


def test_the_same_state_is_not_left_when_an_episode_failed_in_it() -> None:
    """A hole that is drawn like a state of another level must not borrow its worth."""
    found = best_known([attempt("failed", "a", "left", "b"), attempt("goal", "b", "right", "home")])
    assert found == {("b", ("right",))}


def test_luck_counts_on_average_and_every_action_costs() -> None:
    lucky = [attempt("goal", "a", "jump", "home"), *[attempt("failed", "a", "jump", "hole")] * 3]
    walk = attempt("goal", "a", "walk", "b", "walk", "home")  # worth 0.95, a jump 0.25
    assert best_known([*lucky, walk]) == {("a", ("walk",)), ("b", ("walk",))}
    detour = attempt("goal", "a", "up up", "b")  # two actions in one turn: the same b, later
    assert ("a", ("up", "up")) in best_known([detour]) and ("a", ("up up",)) not in best_known([detour])
    slow = attempt("budget", "a", "rest rest", "b")
    assert best_known([walk, slow]) == {("a", ("walk",)), ("b", ("walk",))}


def test_a_turn_without_an_action_is_never_the_best() -> None:
    """What a reply that could not be read does: it leaves everything as it is."""
    assert best_known([attempt("goal", "a", "", "a", "down", "home")]) == {("a", ("down",))}


def test_after_much_play_hindsight_is_the_truth() -> None:
    script = ScriptedPolicy(Explorer())
    settings = DialogueSettings(context="single", brief=True, max_turns=30, actions_per_turn=1)
    played = play(lambda: worlds.make("frozen-lake", **LAKE), attempts(3, 150, "train", 0), script, settings)
    best = best_known([record(episode) for episode in played])
    for level in range(3):
        world = worlds.make("frozen-lake", **LAKE)
        state, info = world.reset(seed=level, options={"split": "train"})
        for _ in range(int(info["optimum"])):  # any best known action, again and again, is a shortest way
            state, _, over, _, told = world.step(next(a for a in world.actions or () if (state, (a,)) in best))
        assert over and told["success"]


def test_each_step_is_learned_once_and_of_the_worse_ones_a_share(tiny: LanguageModel) -> None:
    found = [attempt("goal", "a", "Right", "a", "Up", "b", "Up", "home"), attempt("budget", "a", "Down", "c")]
    found += found
    chat = ChatFormat(tiny.tokenizer)

    def rows(context: str, share: float) -> list[list[float]]:
        dialogue = DialogueSettings(context=context, brief=True)  # type: ignore[arg-type]
        learned = Hindsight(found, share, seed=0)
        return [
            [float(s.weights["ce"]) for s in row.segments if s.weights and not s.tag]  # type: ignore[arg-type]
            for one in found
            for row in rows_of(one, chat, dialogue, VARIANTS["spa"], "", False, learned)
        ]

    assert len(rows("single", 0.0)) == 2 and len(rows("single", 1.0)) == 4
    assert 2 <= len(rows("single", 0.5)) <= 4 and rows("single", 0.5) == rows("single", 0.5)
    (grown,) = rows("full", 0.0)  # a growing dialogue keeps its turns, and learns from those that are to be learned
    assert grown[0] == 0.0 and grown[-1] == 1.0


def test_play_that_never_succeeded_is_one_clear_line(tmp_path: Path) -> None:
    few = ["preset=smoke", "self_play.levels=1", "self_play.group_size=2", "dialogue.max_turns=1"]
    with pytest.raises(OneiroError, match=r"no attempt of the self-play succeeded.*self_play\.group_size"):
        oneiro.run(load("spa/frozen-lake", few), out=tmp_path)


def rows_and_steps(run: Path) -> tuple[int, int]:
    """How many rows the agent learned from, and how many different steps were played."""
    played = [line for path in (run / "episodes").glob("self-play*") for line in read_lines(path)]
    steps = {(t["state"], *t["actions"], t["next_state"]) for one in played for t in one["turns"]}
    return read_json(run / "run.json")["stages"]["sft-spa"]["result"]["rows"], len(steps)


def test_the_demo_learns_from_fewer_steps_than_were_played(finished: Callable[[str, str], Path]) -> None:
    rows, steps = rows_and_steps(finished("spa/frozen-lake", "smoke"))
    assert 0 < rows < steps / 2


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["spa/sokoban", "spa/sudoku"])
def test_the_preset_learns_from_fewer_steps_than_were_played(name: str, tmp_path: Path) -> None:
    small = ["preset=hindsight,smoke", "variants=[spa]", "rl.steps=1", "evaluation.levels=2", "evaluation.samples=1"]
    rows, steps = rows_and_steps(oneiro.run(load(name, small), out=tmp_path).path)
    assert 0 < rows < steps / 2
