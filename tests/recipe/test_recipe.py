"""Recipes: what is laid over what, and what a person is told about a mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from oneiro import recipe as recipes
from oneiro.recipe import Recipe, Settings, dump, listing, load, merge, plain
from oneiro.runtime.errors import OneiroError
from oneiro.systems import recipe_class
from tests.toy_system import ToyRecipe

FILE = """
system: toy
about: a toy
model: {name: tiny, width: 16}
learn: {steps: 100, lr: 1e-3}
presets:
  smoke: {learn: {steps: 3}, model: {width: 4}}
  paper: {learn: {lr: 0.5}}
  big: {model: {name: large, lora: 2}}
  long: {learn: {steps: 1000, lr: 0.1}, models: {large: {learn: {steps: 400}}}}
models:
  large: {learn: {lr: 2e-5, steps: 50}, model: {lora: 8, width: 64}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "toy.yaml"
    path.write_text(FILE)
    return str(path)


def toy(file: str, *overrides: str) -> ToyRecipe:
    recipe = load(file, overrides, ToyRecipe)
    assert isinstance(recipe, ToyRecipe)
    return recipe


def mistake(file: str, *overrides: str) -> str:
    with pytest.raises(OneiroError) as caught:
        toy(file, *overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_is_read_with_scientific_notation_as_people_write_it(file: str) -> None:
    recipe = toy(file)
    assert (recipe.learn.lr, recipe.learn.steps, recipe.learn.save_every, recipe.model.width) == (0.001, 100, 5, 16)


def test_presets_lie_over_the_file_and_overrides_over_presets(file: str) -> None:
    recipe = toy(file, "learn.lr=3e-4", "preset=smoke,paper")
    assert (recipe.learn.steps, recipe.learn.lr, recipe.model.width) == (3, 3e-4, 4)
    assert toy(file, "preset=smoke", "preset=paper").learn.lr == 0.5


def test_the_overlay_of_a_model_lies_between_the_file_and_the_presets(file: str) -> None:
    recipe = toy(file, "model=large", "preset=paper")
    assert recipe.model.model_dump() == {"name": "large", "width": 64, "lora": 8}
    assert (recipe.learn.steps, recipe.learn.lr) == (50, 0.5)


def test_a_preset_may_choose_the_model_and_gets_its_overlay(file: str) -> None:
    recipe = toy(file, "preset=big")
    assert recipe.model.model_dump() == {"name": "large", "width": 64, "lora": 2}
    assert recipe.learn.lr == 2e-5


def test_a_preset_may_set_something_else_for_a_model(file: str) -> None:
    assert (toy(file, "preset=long").learn.steps, toy(file, "preset=long").learn.lr) == (1000, 0.1)
    large = toy(file, "preset=long", "model=large")
    assert (large.learn.steps, large.learn.lr) == (400, 0.1)
    assert toy(file, "preset=big,long").learn.steps == 400  # the model that was finally chosen, whoever chose it
    assert toy(file, "preset=long,smoke", "model=large").learn.steps == 3


def test_naming_another_model_drops_the_settings_of_the_first(file: str) -> None:
    assert toy(file, "model=other").model.model_dump() == {"name": "other", "width": 8, "lora": 0}
    assert toy(file, "model=other", "preset=smoke").model.width == 8
    assert toy(file, "model=large", "preset=smoke").model.width == 64


def test_naming_the_same_model_changes_nothing(file: str) -> None:
    assert toy(file, "model=tiny") == toy(file)


@pytest.mark.parametrize("overrides", [("model=other", "model.lora=3"), ("model.lora=3", "model=other")])
def test_the_order_of_overrides_does_not_matter(file: str, overrides: tuple[str, ...]) -> None:
    assert toy(file, *overrides).model.model_dump() == {"name": "other", "width": 8, "lora": 3}


def test_a_bare_name_stands_for_a_section_with_that_name(tmp_path: Path) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text("system: toy\nmodel: large\nmodels: {large: {model: {lora: 4}}}")
    assert toy(str(path)).model.model_dump() == {"name": "large", "width": 8, "lora": 4}


def test_a_recipe_without_a_model_in_its_file_takes_the_overlay_of_its_default(tmp_path: Path) -> None:
    path = tmp_path / "default.yaml"
    path.write_text("system: toy\nmodels: {tiny: {learn: {steps: 7}}}")
    assert toy(str(path)).learn.steps == 7


def test_a_mistyped_key_is_named_in_full_with_its_nearest_neighbour(file: str) -> None:
    assert mistake(file, "learn.stps=3") == "unknown key 'learn.stps'; did you mean 'learn.steps'?"
    assert mistake(file, "sead=3") == "unknown key 'sead'; did you mean 'seed'?"


def test_a_key_in_the_wrong_section_is_pointed_to_the_right_one(file: str) -> None:
    assert mistake(file, "save_every=3") == "unknown key 'save_every'; did you mean 'learn.save_every'?"


def test_an_unknown_key_that_looks_like_nothing_lists_its_section(file: str) -> None:
    assert mistake(file, "learn.zzz=3") == "unknown key 'learn.zzz'; known: lr, save_every, steps"


def test_a_value_of_the_wrong_type_is_shown_with_what_is_expected(file: str) -> None:
    message = mistake(file, "learn.lr=fast")
    assert message.startswith("learn.lr: got 'fast', expected a number")
    assert mistake(file, "learn=3").startswith("learn: got 3, expected a section, whose settings")
    assert mistake(file, "learn.steps=2.5") == "learn.steps: got 2.5, expected a whole number"
    assert mistake(file, "profile=3") == "profile: got 3, expected true or false"
    assert mistake(file, "about=[3]") == "about: got [3], expected a text"
    assert mistake(file, "checkpoint_minutes=0") == "checkpoint_minutes: got 0, expected greater than 0"
    assert "(and 1 more)" in mistake(file, "learn.lr=fast", "seed=x")


class Ppo(Settings):
    kind: str = Field("ppo", pattern="ppo")
    clip: float = 0.2


class Grpo(Settings):
    kind: str = Field("grpo", pattern="grpo")
    samples: int = 8


class Union(Recipe):
    algorithm: Ppo | Grpo = Ppo()


def test_a_mistake_inside_a_union_names_the_key_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "union.yaml"
    path.write_text("system: toy\nalgorithm: {kind: ppo, clip: wide}")
    with pytest.raises(OneiroError, match=r"^algorithm\.clip: got 'wide', expected a number"):
        load(str(path), (), Union)


def test_an_override_must_be_key_equals_value(file: str) -> None:
    assert mistake(file, "learn.lr") == "'learn.lr' is not an override; write key=value, for instance seed=1"
    assert "cannot read the value of 'learn.lr=[1'" in mistake(file, "learn.lr=[1")


def test_an_unknown_preset_is_answered_with_the_nearest(file: str) -> None:
    assert "did you mean 'smoke'?" in mistake(file, "preset=smok")


def test_a_missing_file_and_an_unknown_name_and_broken_yaml_are_one_line_each(tmp_path: Path) -> None:
    assert mistake(str(tmp_path / "none.yaml")).endswith("none.yaml does not exist")
    assert "no recipe called 'spa/frozen-lak'" in mistake("spa/frozen-lak")
    for name, text in {"broken": "a: [1,", "list": "- a", "number": "3", "empty": "", "keys": "1: 2"}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        assert f"{name}.yaml is not" in mistake(str(tmp_path / f"{name}.yaml"))
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot read" in mistake(str(tmp_path / "binary.yaml"))


@pytest.mark.parametrize("section", ["models: 3", "presets: 3", "presets: [smoke]", "presets: {smoke: {models: 3}}"])
def test_presets_and_models_that_are_no_mapping_are_one_line(tmp_path: Path, section: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(f"system: toy\n{section}\n")
    with pytest.raises(OneiroError, match="expected a name for each group of settings"):
        load(str(path), ["preset=smoke"], ToyRecipe)


def test_recipes_of_a_folder_are_listed_and_found_by_group_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys" / "first.yaml").write_text(FILE)
    monkeypatch.setattr(recipes, "SHIPPED", tmp_path)
    (card,) = listing()
    assert (card.name, card.about, card.presets) == ("toys/first", "a toy", ("smoke", "paper", "big", "long"))
    assert toy("toys/first").learn.steps == 100
    assert "did you mean 'toys/first'?" in mistake("toys/frist")


def test_a_dumped_recipe_reads_back_equal(file: str, tmp_path: Path) -> None:
    recipe = toy(file, "learn.lr=1e-5", "note='1e-4'", "track=[tensorboard]")
    (tmp_path / "again.yaml").write_text(dump(recipe))
    assert toy(str(tmp_path / "again.yaml")) == recipe
    assert plain(recipe)["note"] == "1e-4"


def test_a_recipe_never_changes_after_it_was_read(file: str) -> None:
    with pytest.raises(ValueError, match="frozen"):
        toy(file).seed = 3  # type: ignore[misc]


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
trees = st.recursive(leaves, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8)


@settings(deadline=None)
@given(below=st.dictionaries(st.sampled_from("abc"), trees), above=st.dictionaries(st.sampled_from("abc"), trees))
def test_a_merge_keeps_everything_above_and_what_it_does_not_touch_below(below: dict, above: dict) -> None:
    merged = merge(below, above)
    assert merge(merged, above) == merged
    assert all(merged[key] == below[key] for key in below if key not in above)
    assert all(merged[key] == value for key, value in above.items() if not isinstance(value, dict))


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_override_gives_a_recipe_or_one_line(text: str) -> None:
    data = yaml.safe_load(FILE)
    try:
        _, changes = recipes._split([f"note={text}", text])
        recipes.build(ToyRecipe, recipes._overlay(data, {}, [], changes, ToyRecipe))
    except OneiroError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("name", "override", "said"),
    [
        ("spa/frozen-lake", "slots=3", "'slots' is now called 'max_batch_size'"),
        ("spa/frozen-lake", "rollout.groups=3", "'rollout.groups' is now called 'rollout.prompts_per_step'"),
        ("spa/frozen-lake", "rl.overlap=true", "'rl.overlap' is now called 'rl.async_rollout'"),
        ("spa/frozen-lake", "self_play.policy=curious", "self_play.policy: 'curious' is now called 'exploration'"),
        ("rlvr/text-game", "lessons.rows=3", "'lessons' is now called 'sft_data'"),
        ("rlvr/text-game", "task.scorer=release", "task.scorer: 'release' is now called 'official'"),
        ("rlvr/text-game", "system=rlvr", "the system 'rlvr' is now called 'rlvr/text-game'"),
    ],
)
def test_an_old_name_is_answered_with_the_new_one(name: str, override: str, said: str) -> None:
    with pytest.raises(OneiroError, match=re.escape(said)):
        if override.startswith("system="):
            recipe_class(override.partition("=")[2])
        load(name, [override])


def test_a_bare_word_that_is_a_preset_and_one_text_for_a_list_of_overrides_are_told_how_to_write(file: str) -> None:
    assert mistake(file, "smoke") == "'smoke' is not an override; write preset=smoke"
    assert "write key=value" in mistake(file, "smok")
    with pytest.raises(OneiroError, match=r"^overrides: expected a list of texts, write \['preset=smoke'\]$"):
        load(file, "preset=smoke")


def test_a_layer_may_begin_with_settings_that_recipes_share(tmp_path: Path) -> None:
    """What is null is reset, the base lies over it, the layer's own settings over both."""
    (tmp_path / "_shared.yaml").write_text("paper: {sft: {epochs: 7, batch: 3}, rl: {steps: 9}}")
    (tmp_path / "own.yaml").write_text(
        "system: spa\nsft: {epochs: 2, checkpoint_every: 5}\nrl: {steps: 4, minibatches: 2}\n"
        "presets: {paper: {base: _shared/paper, sft: null, rl: {steps: 8}}, wrong: {base: _shared/papr}}\n"
    )
    found = load(str(tmp_path / "own.yaml"), ["preset=paper", "sft.batch=4"]).model_dump()
    assert (found["sft"]["epochs"], found["sft"]["batch"]) == (7, 4)
    assert found["sft"]["checkpoint_every"] == load("spa/bandit", ["sft=null"]).model_dump()["sft"]["checkpoint_every"]
    assert (found["rl"]["steps"], found["rl"]["minibatches"]) == (8, 2)
    assert load(str(tmp_path / "own.yaml"), ["checkpoint_minutes=null"]).checkpoint_minutes is None
    with pytest.raises(OneiroError, match=r"no group of settings in _shared\.yaml called 'papr'; did you mean 'paper'"):
        load(str(tmp_path / "own.yaml"), ["preset=wrong"])
    with pytest.raises(OneiroError, match="'protocol' is no setting any more: leave it out"):
        load(str(tmp_path / "own.yaml"), ["protocol=spa"])
