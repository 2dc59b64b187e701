"""The games behind the World interface."""

from __future__ import annotations

import json

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.worlds import registry
from oneiro.worlds.check import check
from oneiro.worlds.textgame.games import GAMES
from oneiro.worlds.textgame.world import TextGame, TextGameConfig


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.WORLDS, "textgame", "oneiro.worlds.textgame.world:TextGame")


def make(game: str = "mix-paint", **settings: object) -> TextGame:
    return TextGame(TextGameConfig(game=game, **settings))  # type: ignore[arg-type]


def test_a_game_passes_every_check_of_a_world(few_levels: None) -> None:
    assert [finding.message for finding in check("textgame:open-chest") if finding.status == "error"] == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", GAMES)
def test_every_game_passes_every_check_of_a_world_on_many_levels(name: str) -> None:
    assert [finding.message for finding in check(f"textgame:{name}") if finding.status == "error"] == []


def test_every_game_is_a_variant() -> None:
    for name in GAMES:
        world = registry.make(f"textgame:{name}")
        assert isinstance(world, TextGame) and world.game.name == name
    with pytest.raises(OneiroError, match="did you mean 'mix-paint'"):
        registry.make("textgame", game="mixpaint")


@pytest.mark.parametrize("name", GAMES)
def test_the_oracle_wins_and_earns_exactly_one(name: str) -> None:
    world = make(name)
    world.reset(seed=5, options={"split": "eval"})
    assert world.ceiling() == 1.0
    earned, info = 0.0, {}
    for _ in range(world.config.max_actions):
        command = world.oracle()
        assert command is not None
        _, reward, terminated, _, info = world.step(command)
        earned += reward
        if terminated:
            break
    assert info["success"] and earned == pytest.approx(1.0)


def test_the_ceiling_is_nought_where_the_budget_is_too_small() -> None:
    world = make("brew-tea", max_actions=3)
    world.reset(seed=0)
    assert world.ceiling() == 0.0


def test_the_oracle_finds_back_after_a_detour() -> None:
    world = make("brew-tea")
    world.reset(seed=1)
    world.step(f"take {world.scene.the('Cup').name}")
    world.step(f"drop {world.scene.the('Cup').name}")
    while not world.over:
        world.step(world.oracle() or "wait")
    assert world.scene.won


def test_the_json_view_is_the_state_and_reads_back() -> None:
    world = make()
    shown, _ = world.reset(seed=2)
    assert "Score: 0 of 2" in shown
    text = world.render("json")
    assert json.loads(text)["game_state"] == world.parse(text, "json") == world.state
    assert world.state[-1] == {"score": 0, "gameOver": False, "gameWon": False}
    for nonsense in ("", "[]", "{", "[" * 10**5):
        assert world.parse(nonsense, "json") is None


def test_a_closed_container_hides_its_contents_from_the_readable_view() -> None:
    world = make()
    for seed in range(20):
        shown, _ = world.reset(seed=seed)
        assert ("red paint" in shown) == world.scene.the("Cabinet")["isOpen"]


def test_an_action_that_is_not_understood_costs_a_turn_and_nothing_else() -> None:
    world = make("make-ice", max_actions=2)
    before, _ = world.reset(seed=0)
    _, reward, terminated, truncated, info = world.step("sing")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["valid"], info["effective"], info["success"]) == (False, False, False)
    assert world.render().endswith(before.partition("\n")[2])
    assert world.step("sing")[3]


def test_random_actions_are_always_understood() -> None:
    world, rng = make("open-chest"), generator("random")
    world.reset(seed=0)
    for _ in range(30):
        assert world.step(world.random_action(rng))[4]["valid"]


def test_the_situation_names_the_first_free_uuid() -> None:
    world = make()
    world.reset(seed=3)
    situation = world.situation("wait")
    assert situation.uuid_base == 1 + max(thing["uuid"] for thing in situation.state)
    assert situation.action == "wait" and situation.game == "mix-paint"


def test_the_instruction_has_the_task_the_commands_and_the_budget() -> None:
    world = make(max_actions=17)
    world.reset(seed=0)
    for part in (world.game.task, '"mix X with Y"', "17 commands", "red and yellow give orange"):
        assert part in world.instruction
