"""SPA's recipes: the shipped ones load in every form, protocols carry their tables, senseless combinations say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneiro.recipe import dump, find, listing, load, read
from oneiro.runtime.errors import OneiroError
from oneiro.systems.spa.recipe import VARIANTS, SpaRecipe
from oneiro.systems.spa.self_play import self_play_stage
from oneiro.worlds.registry import config_for

SHIPPED = [card.name for card in listing() if card.name.startswith("spa/")]


def recipe(*overrides: str, name: str = "spa/frozen-lake") -> SpaRecipe:
    loaded = load(name, ["preset=smoke", *overrides])
    assert isinstance(loaded, SpaRecipe)
    return loaded


def forms(name: str) -> list[list[str]]:
    data = read(find(name))
    return [
        [],
        *([f"preset={preset}"] for preset in data["presets"]),
        *([f"model={model}"] for model in data["models"]),
    ]


def test_there_is_a_recipe_for_each_world_and_it_says_what_it_needs() -> None:
    assert {f"spa/{w}" for w in ("frozen-lake", "sokoban", "sudoku", "countdown", "webshop")} <= set(SHIPPED)
    for card in (card for card in listing() if card.name in SHIPPED):
        assert card.about and card.needs and card.takes and "smoke" in card.presets


@pytest.mark.parametrize("name", SHIPPED)
def test_every_preset_and_model_of_a_recipe_resolves_and_reads_back(name: str, tmp_path: Path) -> None:
    for overrides in forms(name):
        resolved = load(name, overrides)
        path = tmp_path / "resolved.yaml"
        path.write_text(dump(resolved))
        assert load(str(path)) == resolved, overrides


@pytest.mark.parametrize("name", ["spa/frozen-lake", "spa/sokoban", "spa/sudoku"])
def test_the_papers_models_get_the_papers_settings(name: str) -> None:
    """Tables 1.1 to 1.3: data, SFT and PPO of SPA."""
    for model in ("Qwen2.5-0.5B-Instruct", "Qwen2.5-1.5B-Instruct", "Qwen2.5-3B-Instruct"):
        found = load(name, [f"model=Qwen/{model}"])
        assert isinstance(found, SpaRecipe) and found.world.settings["view"] == "grid+coordinates"
        play, sft, rl = found.self_play, found.sft, found.rl
        assert play.policy == "self" and play.batches * play.levels * play.group_size == 1280 and play.held_out == 0.2
        assert (sft.learner.optimiser.lr, sft.epochs, sft.batch) == (1e-4, 5, 16)
        assert (sft.learner.optimiser.schedule, sft.learner.optimiser.warmup) == ("cosine", 0.1)
        assert (rl.steps, found.rollout.prompts_per_step, found.rollout.group_size, rl.minibatches) == (1000, 32, 8, 1)
        assert (rl.filter.name, rl.filter.keep) == ("fraction", 0.25)
        assert rl.algorithm.name == "ppo" and (rl.algorithm.gamma, rl.algorithm.lam) == (1.0, 1.0)
        assert (rl.learner.loss.clip_low, rl.learner.loss.clip_high, rl.learner.loss.entropy) == (0.2, 0.28, 0.001)
        assert (rl.learner.optimiser.lr, rl.critic.lr, rl.learner.loss.kl) == (1e-6, 1e-5, 0.0)
        assert (found.dialogue.context, found.dialogue.max_turns, found.dialogue.actions_per_turn) == ("full", 5, 5)
        assert found.dialogue.show_reward and found.dialogue.format_penalty == 0.1 and not found.dialogue.brief
        assert found.sampling.max_tokens == 400 and found.world.settings["max_actions"] in (10, 25)
    lake = load("spa/frozen-lake", ["model=Qwen/Qwen2.5-3B-Instruct"])
    assert isinstance(lake, SpaRecipe) and lake.world.settings["size"] == 6


def test_ragen_presets_carry_their_columns_and_give_way_to_what_is_written() -> None:
    first, second = (load("spa/sokoban", [f"preset={p}", "model=smollm2-135m"]) for p in ("ragen", "ragen2"))
    assert isinstance(first, SpaRecipe) and isinstance(second, SpaRecipe)
    assert (first.rollout.prompts_per_step, first.rollout.group_size, first.rl.steps) == (8, 16, 200)
    assert (first.dialogue.actions_per_turn, second.dialogue.actions_per_turn) == (5, 2)
    assert (first.rl.filter.name, first.rl.filter.keep, second.rl.filter.name) == ("fraction", 0.25, "none")
    assert (first.evaluation.levels, second.evaluation.levels, second.evaluation.temperature) == (256, 512, 0.5)
    assert second.rl.minibatches == 4 and second.rl.algorithm.name == "ppo" and second.variants == ["vanilla-rl"]
    changed = load("spa/sokoban", ["preset=ragen2", "model=smollm2-135m", "rl.steps=7", "rl.algorithm=grpo"])
    assert isinstance(changed, SpaRecipe)
    assert changed.rl.steps == 7 and changed.rl.algorithm.name == "grpo" and changed.rl.minibatches == 4


MISTAKES = {
    "variants=[sap]": "no variant called 'sap'; did you mean 'spa'",
    "variants=[echo]": "set dialogue.context=full .it is single",
    "rl.environment_ce=0.1": "set dialogue.context=full",
    "variants=[transfer]": "variant 'transfer' needs transfer_world",
    "variants=[no-coordinates]": "the view 'spaced' has no coordinates",
    "variants=[wrong-coordinates]": "set world.view=grid.coordinates",
    "dialogue.think=false": "set response_prefix='<answer>'",
    "self_play.policy=server": "needs self_play.server.model=NAME",
    "define={mine: {sft: maybe}}": "define.mine.sft",
    "variants=[self-belief]": "a script believes nothing; set self_play.policy=self or server .it is exploration",
    "dialogue.world_model=false": "set variants=.no-world-model",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_a_senseless_combination_is_one_line(override: str) -> None:
    with pytest.raises(OneiroError, match=MISTAKES[override]) as caught:
        recipe(override)
    assert "\n" not in str(caught.value)


def test_states_have_no_place_in_replies_without_thoughts() -> None:
    with pytest.raises(OneiroError, match="variant 'spa' writes states into its thoughts"):
        recipe("dialogue.think=false", "response_prefix=<answer>")
    assert (
        recipe("dialogue.think=false", "response_prefix=<answer>", "variants=[no-world-model]").response_prefix
        == "<answer>"
    )


def test_arms_share_their_play_unless_somebody_else_plays_or_something_else_is_seen() -> None:
    found = recipe(
        "self_play.policy=mixture",
        "world.view=grid+coordinates",
        "transfer_world={name: frozen-lake, size: 3}",
        "define={mine: {data: mixture, epochs: 2}, other: {data: oracle}}",
        "variants=[spa,no-world-model,masked-states,random-data,transfer,no-coordinates,wrong-coordinates,mine,other]",
    )
    stages = {name: self_play_stage(found, name) for name in found.variants}
    assert {name for name, stage in stages.items() if stage == "self-play"} == {
        "spa", "no-world-model", "masked-states", "mine",
    }  # fmt: skip
    assert stages["random-data"] == "self-play-random-data"
    worlds = {name: found.world_of(found.variant(name)).settings for name in found.variants}
    assert (
        worlds["no-coordinates"]["view"] == "text" and worlds["wrong-coordinates"]["view"] == "grid+wrong-coordinates"
    )
    assert worlds["transfer"] == worlds["spa"]
    assert found.sft_data_of(found.variant("transfer"))[0].settings == {"size": 3, "view": "grid+coordinates"}
    assert found.sft_data_of(found.variant("other"))[1].policy == "oracle"


def test_vanilla_rl_sees_the_plain_grid() -> None:
    found = recipe("world.view=grid+coordinates", "variants=[base,vanilla-rl,state-estimation-rl]")
    views = [found.world_of(found.variant(name)).settings["view"] for name in found.variants]
    assert views == ["text", "text", "grid+coordinates"]
    assert recipe("variants=[vanilla-rl]").world_of(VARIANTS["vanilla-rl"]).settings["view"] == "spaced"


def test_the_spaced_view_loses_its_coordinates_too() -> None:
    found = recipe("world.view=spaced+coordinates", "variants=[no-coordinates]")
    assert found.world_of(VARIANTS["no-coordinates"]).settings["view"] == "spaced"
    assert found.world_of(VARIANTS["wrong-coordinates"]).settings["view"] == "spaced+wrong-coordinates"


def test_the_easy_world_is_seen_as_the_hard_one_unless_the_recipe_says_otherwise() -> None:
    def view(*overrides: str) -> str:
        found = recipe(*overrides, "variants=[transfer]")
        recorded_play, _ = found.sft_data_of(VARIANTS["transfer"])
        return config_for(recorded_play.name, recorded_play.settings).view

    assert view("world.view=spaced+coordinates", "transfer_world={name: frozen-lake, size: 3}") == "spaced+coordinates"
    assert view("transfer_world={name: frozen-lake, size: 3, view: text}") == "text"
    assert view("transfer_world=frozen-lake:coordinates") == config_for("frozen-lake:coordinates").view != "spaced"
    assert view("world.view=spaced", "transfer_world=sokoban") == "spaced"
    assert view("world.view=spaced", "transfer_world=bandit") == "text"  # the only one it has
