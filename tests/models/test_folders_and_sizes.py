"""Which weights a folder means, and which sizes a tiny model can have."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneiro.models import locate
from oneiro.models.language import ModelSettings
from oneiro.models.locate import METADATA, newest_weights, require_model
from oneiro.recipe import build
from oneiro.runtime.errors import OneiroError


def weights(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").touch()
    return folder


def test_a_run_means_its_newest_weights_after_rl_else_after_sft(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="holds no model"):
        newest_weights(tmp_path)
    weights(tmp_path / "checkpoints/sft-spa/step-000001/model")
    taught = weights(tmp_path / "checkpoints/sft-spa/step-000002/model")
    weights(tmp_path / "checkpoints/other/step-000009/model")
    assert newest_weights(tmp_path) == taught
    learned = weights(tmp_path / "checkpoints/rl-spa/step-000003/model")
    assert newest_weights(tmp_path) == newest_weights(tmp_path / "checkpoints/rl-spa") == newest_weights(learned)
    assert newest_weights(learned) == learned
    weights(tmp_path / "checkpoints/rl-control/step-000003/model")
    with pytest.raises(OneiroError, match=r"several models; name one of .*rl-control, .*rl-spa$"):
        newest_weights(tmp_path)


@pytest.mark.parametrize(("width", "heads"), [(32, 5), (30, 4), (36, 8), (12, 12)])
def test_heads_of_an_odd_size_are_refused(width: int, heads: int) -> None:
    with pytest.raises(OneiroError, match=f"width {width} must be a multiple of 2 x heads = {2 * heads}"):
        build(ModelSettings, {"width": width, "heads": heads})


def test_heads_that_divide_the_width_are_taken() -> None:
    assert build(ModelSettings, {"width": 24, "heads": 12}).width == 24


def test_a_model_is_required_before_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(locate, "missing_on_hub", lambda name: (asked.append(name), "it is not there")[1])
    folder = weights(tmp_path / "model")
    with pytest.raises(OneiroError, match="has no tokenizer"):
        require_model(str(folder), ask_hub=True)
    (folder / METADATA).touch()  # a model of ours, which knows how it is asked
    require_model(str(folder), ask_hub=True)
    for name in ("tiny", "smollm2-135m"):
        require_model(name, ask_hub=True)
    require_model("org/model", ask_hub=False)
    assert asked == []
    with pytest.raises(OneiroError, match="no model folder at 'org/model', and it is not there"):
        require_model("org/model", ask_hub=True)
    assert asked == ["org/model"]
    with pytest.raises(OneiroError, match=r"no model folder at '\./nowhere'"):
        require_model("./nowhere", ask_hub=False)
    # The weights inside a run are looked at, not the run.
    inside = weights(tmp_path / "run/checkpoints/rl-a/step-000001/model")
    with pytest.raises(OneiroError, match="has no tokenizer"):
        require_model(str(tmp_path / "run"), ask_hub=False)
    (inside / "tokenizer.json").touch()
    require_model(str(tmp_path / "run"), ask_hub=False)
