"""Settings for any pretrained model, by its size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from oneiro import recipe
from oneiro.recipe import SHIPPED, load, pretrained
from oneiro.recipe.mistakes import explain
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny

EVERY = [
    path.relative_to(SHIPPED).with_suffix("").as_posix() for path in SHIPPED.rglob("*.yaml") if "video" not in path.name
]
FROM_SCRATCH = ("plan/frozen-lake", "plan/text-game", "dyna/frozen-lake")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen3-0.6B", 0.6e9),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 135e6),
        ("google/gemma-3-270m-it", 270e6),
        ("Qwen/Qwen3-30B-A3B", 30e9),
        ("mistralai/Mixtral-8x7B-v0.1", 56e9),
        ("org/thing", None),
        ("org/bert-3bad", None),
    ],
)
def test_a_name_tells_the_size(name: str, parameters: float | None) -> None:
    assert pretrained.parameters_of(name) == parameters


def test_a_folder_tells_the_size(tmp_path: Path) -> None:
    language = make_tiny(width=64)
    language.save(tmp_path / "run" / "checkpoints" / "base")
    for folder in (tmp_path / "run", tmp_path / "run" / "checkpoints" / "base"):
        assert pretrained.parameters_of(str(folder)) == pytest.approx(language.backbone.shape.parameters, rel=0.05)
    (tmp_path / "broken").mkdir()
    # Qwen2.5-1.5B: 12 heads share two keys and values.
    config = {"hidden_size": 1536, "num_hidden_layers": 28, "vocab_size": 151_936, "intermediate_size": 8960}
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "config.json").write_text(
        json.dumps({**config, "num_attention_heads": 12, "num_key_value_heads": 2})
    )
    assert pretrained.parameters_of(str(tmp_path / "shared")) == pytest.approx(1.5437e9, rel=1e-3)
    (tmp_path / "broken" / "config.json").write_text("[[")
    assert pretrained.parameters_of(str(tmp_path / "broken")) is None


@pytest.mark.parametrize("name", FROM_SCRATCH)
def test_recipes_that_train_from_scratch_say_so(name: str) -> None:
    with pytest.raises(OneiroError, match=r"from scratch: set model\.name=tiny"):
        load(name, ["model=Qwen/Qwen3-0.6B"])


class Modelless(recipe.Recipe):
    """A recipe of something that is no language model."""


def test_recipes_without_a_language_model_say_so() -> None:
    with pytest.raises(ValidationError) as found:
        Modelless.model_validate({"system": "toy", "model": {"name": "tiny"}})
    said = explain(found.value, Modelless, {"model": {"name": "tiny"}})
    assert said == "this recipe has no language model to choose; leave out model=..."


@pytest.mark.parametrize("name", [name for name in EVERY if name not in FROM_SCRATCH])
def test_every_recipe_has_settings_for_a_pretrained_model(name: str) -> None:
    template = load(name, ["model=smollm2-135m"]).model_dump()
    fitted = load(name, ["model=Qwen/Qwen3-0.6B"]).model_dump()
    factor = (135 / 600) ** 0.5
    for stage in {"sft", "rl", "refresh", "actor", "critic"} & template.keys():
        if "learner" not in template[stage]:
            continue  # dyna/web: its policy is linear
        rate = template[stage]["learner"]["optimiser"]["lr"] * factor
        assert fitted[stage]["learner"]["optimiser"]["lr"] == pytest.approx(rate, rel=0.05)
    assert fitted["sft"]["batch"] == template["sft"]["batch"] and fitted["model"]["lora"] is None
    assert (
        "26 GB to train all weights" in fitted["needs"]
        and "600M parameters" in fitted["takes"]
        and "not measured" in fitted["takes"]
    )


def test_a_large_model_learns_an_adapter_at_a_higher_rate() -> None:
    small, large = (load("spa/frozen-lake", [f"model=org/{size}B"]).model_dump() for size in (2, 8))
    assert small["model"]["lora"] is None and large["model"]["lora"]["rank"] == 32
    rates = [found["sft"]["learner"]["optimiser"]["lr"] for found in (small, large)]
    assert rates[1] / rates[0] == pytest.approx(5 * (2 / 8) ** 0.5, rel=0.1)


def test_what_a_person_or_a_protocol_says_wins() -> None:
    changed = load(
        "spa/frozen-lake", ["model=org/1B", "sft.learner.optimiser.lr=1e-6", "model.lora.rank=4"]
    ).model_dump()
    assert changed["sft"]["learner"]["optimiser"]["lr"] == 1e-6 and changed["model"]["lora"]["rank"] == 4
    published = load("spa/frozen-lake", ["model=org/1B", "preset=spa"])
    assert published.needs == "a pretrained model (model=...) and one GPU with 80 GB"
    listed = load("spa/frozen-lake", ["model=Qwen/Qwen2.5-0.5B-Instruct"]).model_dump()
    assert listed["protocol"] == "spa"


def test_a_small_folder_keeps_the_recipes_own_settings(tmp_path: Path) -> None:
    folder = make_tiny().save(tmp_path / "mine")
    own, with_folder = (load("spa/frozen-lake", overrides) for overrides in ([], [f"model={folder}"]))
    assert with_folder.takes == own.takes
    assert recipe.flat(with_folder.model_dump())["sft.learner.optimiser.lr"] == 5e-3


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([], "tiny: the recipe's own settings"),
        (["model=smollm2-135m"], "smollm2-135m: settings that this recipe has for it"),
        (
            ["model=Qwen/Qwen2.5-0.5B-Instruct"],
            "Qwen/Qwen2.5-0.5B-Instruct: the published protocol 'spa' (this recipe has it for this model)",
        ),
        (["model=Qwen/Qwen3-0.6B", "preset=ragen"], "Qwen/Qwen3-0.6B: the published protocol 'ragen' (asked for)"),
        (
            ["model=Qwen/Qwen3-0.6B"],
            f"Qwen/Qwen3-0.6B: {pretrained.GENERAL}, for 600M parameters "
            "(the recipe has none of its own for this model)",
        ),
        (["model=org/thing"], f"org/thing: {pretrained.GENERAL}, for an unknown size (the recipe"),
    ],
)
def test_a_recipe_says_which_settings_a_model_gets_and_why(overrides: list[str], said: str) -> None:
    assert recipe.load_explained("spa/frozen-lake", overrides)[1].startswith(said)


def test_a_recipe_without_settings_for_models_says_nothing_of_them(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(recipe.dump(load("spa/frozen-lake")))
    assert recipe.load_explained(str(tmp_path / "recipe.yaml")) == (load("spa/frozen-lake"), "")
    _, why = recipe.load_explained(str(tmp_path / "recipe.yaml"), ["model=Qwen/Qwen3-0.6B"])
    assert why == "Qwen/Qwen3-0.6B: settings that this recipe has for tiny (it has none for this model)"
