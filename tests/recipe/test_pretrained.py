"""Settings for any pretrained model, by its size."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from pydantic import ValidationError

from oneiro import recipe
from oneiro.recipe import load, pretrained
from oneiro.recipe.mistakes import explain
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny

EVERY = [card.name for card in recipe.listing() if "video" not in card.name]
FROM_SCRATCH = ("plan/frozen-lake", "plan/text-game", "dyna/frozen-lake")


QWEN3 = {  # Qwen3-0.6B
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "vocab_size": 151_936,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A cache of the hub; `hub(name, **config)` puts a model's config.json there."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(name: str, **config: object) -> None:
        folder = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text("abc")
        (folder / "snapshots" / "abc").mkdir(parents=True)
        (folder / "snapshots" / "abc" / "config.json").write_text(json.dumps(config))

    yield put


def of_size(parameters: float) -> dict[str, float]:
    """A config whose embeddings have so many parameters, its layer about none."""
    return {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": parameters // 64}


def test_the_hubs_cache_tells_the_size_and_a_name_never_does(hub: Callable[..., None]) -> None:
    hub("Qwen/Qwen3-0.6B", **QWEN3)
    # 155.6M embeddings and 28 layers of 3 * 1024^2 + 9 * 1024^2.
    assert pretrained.count_parameters("Qwen/Qwen3-0.6B") == 151_936 * 1024 + 28 * 12 * 1024**2
    for name in ("Qwen/Qwen3-1.7B", "org/thing", "no/such/name", ""):
        assert pretrained.count_parameters(name) is None


def test_a_model_of_unknown_size_needs_its_learning_rates(hub: Callable[..., None]) -> None:
    with pytest.raises(OneiroError) as error:
        load("spa/bandit", ["model=org/9B"])
    assert str(error.value) == (
        "learning rates for 'org/9B' follow from its size, which no config.json here tells: get it with "
        "`hf download org/9B config.json`, or give sft.learner.optimiser.lr=... and rl.learner.optimiser.lr=..."
    )
    with pytest.raises(OneiroError, match=r"or give rl\.learner\.optimiser\.lr=\.\.\.$"):
        load("spa/bandit", ["model=org/9B", "sft.learner.optimiser.lr=1e-4"])
    given = ["model=org/9B", "sft.learner.optimiser.lr=1e-4", "rl.learner.optimiser={name: adamw, lr: 1e-6}"]
    resolved, why = recipe.load_explained("spa/bandit", given)
    data = resolved.model_dump()
    assert [data[stage]["learner"]["optimiser"]["lr"] for stage in ("sft", "rl")] == [1e-4, 1e-6]
    assert data["model"]["lora"] is None and "for an unknown size" in why and "unknown size" in data["takes"]


def test_a_folder_tells_the_size(tmp_path: Path) -> None:
    language = make_tiny(width=64)
    language.save(tmp_path / "run" / "checkpoints" / "base")
    for folder in (tmp_path / "run", tmp_path / "run" / "checkpoints" / "base"):
        assert pretrained.count_parameters(str(folder)) == pytest.approx(language.backbone.shape.parameters, rel=0.05)
    (tmp_path / "broken").mkdir()
    # Qwen2.5-1.5B: 12 heads share two keys and values.
    config = {"hidden_size": 1536, "num_hidden_layers": 28, "vocab_size": 151_936, "intermediate_size": 8960}
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "config.json").write_text(
        json.dumps({**config, "num_attention_heads": 12, "num_key_value_heads": 2})
    )
    assert pretrained.count_parameters(str(tmp_path / "shared")) == pytest.approx(1.5437e9, rel=1e-3)
    (tmp_path / "broken" / "config.json").write_text("[[")
    assert pretrained.count_parameters(str(tmp_path / "broken")) is None


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
def test_every_recipe_has_settings_for_a_pretrained_model(name: str, hub: Callable[..., None]) -> None:
    hub("Qwen/Qwen3-0.6B", **of_size(600e6))
    written = load(name, ["model=smollm2-135m"])
    template, fitted = written.model_dump(), load(name, ["model=Qwen/Qwen3-0.6B"]).model_dump()
    factor = (135 / 600) ** 0.5
    # plan/physics inherits `rl` and does not use it.
    for stage in {"sft", "rl", "refresh", "actor", "critic"} & written.model_fields_set:
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


def test_a_large_model_learns_an_adapter_at_a_higher_rate(hub: Callable[..., None]) -> None:
    for size in (2, 8):
        hub(f"org/{size}B", **of_size(size * 1e9))
    small, large = (load("spa/frozen-lake", [f"model=org/{size}B"]).model_dump() for size in (2, 8))
    assert small["model"]["lora"] is None and large["model"]["lora"]["rank"] == 32
    rates = [found["sft"]["learner"]["optimiser"]["lr"] for found in (small, large)]
    assert rates[1] / rates[0] == pytest.approx(5 * (2 / 8) ** 0.5, rel=0.1)


def test_what_a_person_or_a_protocol_says_wins(hub: Callable[..., None]) -> None:
    hub("org/1B", **of_size(1e9))
    changed = load(
        "spa/frozen-lake", ["model=org/1B", "sft.learner.optimiser.lr=1e-6", "model.lora.rank=4"]
    ).model_dump()
    assert changed["sft"]["learner"]["optimiser"]["lr"] == 1e-6 and changed["model"]["lora"]["rank"] == 4
    published = load("spa/frozen-lake", ["model=org/1B", "preset=spa"])
    assert published.needs == "a pretrained model (model=...) and one GPU with 80 GB"
    listed = load("spa/frozen-lake", ["model=Qwen/Qwen2.5-0.5B-Instruct"]).model_dump()
    assert listed["rl"]["steps"] == 1000 and listed["dialogue"]["actions_per_turn"] == 5


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
    ],
)
def test_a_recipe_says_which_settings_a_model_gets_and_why(
    overrides: list[str], said: str, hub: Callable[..., None]
) -> None:
    hub("Qwen/Qwen3-0.6B", **of_size(600e6))
    assert recipe.load_explained("spa/frozen-lake", overrides)[1].startswith(said)


def test_a_recipe_without_settings_for_models_says_nothing_of_them(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(recipe.dump(load("spa/frozen-lake")))
    assert recipe.load_explained(str(tmp_path / "recipe.yaml")) == (load("spa/frozen-lake"), "")
    _, why = recipe.load_explained(str(tmp_path / "recipe.yaml"), ["model=Qwen/Qwen3-0.6B"])
    assert why == "Qwen/Qwen3-0.6B: settings that this recipe has for tiny (it has none for this model)"
