"""Where a model is found: in a folder, in a run, on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oneiro.models import locate
from oneiro.models.locate import METADATA, newest_weights, require_model
from oneiro.models.settings import require_place
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


def test_a_run_of_phases_means_its_last_actor(tmp_path: Path) -> None:
    weights(tmp_path / "checkpoints/sft/step-000002/model")
    weights(tmp_path / "phase_2/actor")
    last = weights(tmp_path / "phase_10/actor")
    weights(tmp_path / "random-tasks/phase_11/actor")
    assert newest_weights(tmp_path) == last


def test_names_that_can_be_no_model_are_refused_before_anybody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    for name in ("./a/b", "/a/b", "~/a", "plain", "a/b/c", "here/model"):
        with pytest.raises(OneiroError, match="no model folder at"):
            require_place(name)
    with pytest.raises(OneiroError, match="did you mean 'smollm2-135m'"):
        require_place("smolm2-135m")
    for name in ("tiny", "smollm2-135m", "org/model", "here"):
        require_place(name)
    with pytest.raises(OneiroError, match="'tiny' is trained from scratch"):
        locate.locate("tiny")
    monkeypatch.setattr("oneiro.models.smollm.fetch", lambda: tmp_path / "fetched")
    assert locate.locate("smollm2-135m") == str(tmp_path / "fetched")


def test_the_hub_is_asked_once_and_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError

    answer: dict[str, Any] = {"cached": None, "raises": None}

    class Api:
        def model_info(self, name: str, timeout: float) -> None:
            assert (name, timeout) == ("org/model", 5.0)
            if answer["raises"] is not None:
                raise answer["raises"]

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, file: answer["cached"])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OneiroError, match="no model folder at 'org/model', and the Hugging Face hub is switched off"):
        locate.locate("org/model")
    answer["cached"] = "/cache/config.json"
    assert locate.locate("org/model") == "org/model"
    answer["cached"] = None
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert locate.missing_on_hub("org/model") is None
    refused = HfHubHTTPError.__new__(HfHubHTTPError)
    answer["raises"] = refused
    assert locate.missing_on_hub("org/model") == "the Hugging Face hub has no such model for you"
    answer["raises"] = ConnectionError()
    assert locate.missing_on_hub("org/model") == "the Hugging Face hub cannot be reached"


def test_the_best_weights_come_before_the_newest(tmp_path: Path) -> None:
    for place in ("step-000001/model", "step-000002/model", "best/model"):
        (tmp_path / "rl" / place).mkdir(parents=True)
    assert locate.newest_weights(tmp_path / "rl") == tmp_path / "rl/best/model"
    (tmp_path / "rl/best/model").rmdir()
    assert locate.newest_weights(tmp_path / "rl") == tmp_path / "rl/step-000002/model"
    assert locate.newest_weights(tmp_path / "rl/step-000001") == tmp_path / "rl/step-000001/model"
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").touch()
    assert locate.newest_weights(tmp_path / "adapter") == tmp_path / "adapter"


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
