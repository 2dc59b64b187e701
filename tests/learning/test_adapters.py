"""Adapters of every kind learn, resume, merge, and sample what they learn; weights in few bits below them."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from oneiro.episode import Row, given
from oneiro.learning import sft
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.optimiser import OptimiserSettings
from oneiro.models.language import LanguageModel, LoraSettings, ModelSettings, load, merge_adapters, with_lora
from oneiro.recipe import build
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny

ROWS = [Row([given([i % 9, 2, 3]), given([10 + i % 5, 11], ce=1.0)]) for i in range(40)]
EXAMPLES = [Example.of(row) for row in ROWS[:6]]
KINDS = {
    "all": LoraSettings(rank=4),
    "some projections": LoraSettings(rank=4, targets=("q_proj", "v_proj")),
    "dropout": LoraSettings(rank=4, dropout=0.3),
    "rslora": LoraSettings(rank=4, rslora=True),
    "dora": LoraSettings(rank=4, dora=True),
}


def train(language: LanguageModel, folder: Path, stop_at: int | None = None) -> list[float]:
    learner = LearnerSettings(optimiser=OptimiserSettings(lr=1e-2))
    chosen = sft.SftSettings(batch=8, epochs=2.0, checkpoint_every=3, learner=learner)
    logged: list[float] = []

    class Killed(Exception):
        pass

    def log(step: int, values: dict[str, float]) -> None:
        if step == stop_at:
            raise Killed
        logged.append(values["ce"])

    with contextlib.suppress(Killed):
        sft.train(language, ROWS, [], chosen, folder, 0, log)
    return logged


def scores(language: LanguageModel) -> np.ndarray:
    return np.concatenate(Learner(language.backbone, LearnerSettings(), 1).logprobs(EXAMPLES)[0])


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in ("all", "dropout", "dora") else [pytest.mark.thorough]) for kind in KINDS],
)
def test_an_adapter_learns_resumes_and_merges(kind: str, tmp_path: Path) -> None:
    language = with_lora(make_tiny(), KINDS[kind])
    whole = train(language, tmp_path / "whole")
    assert whole[-1] < whole[0] - 0.1
    torch.manual_seed(7)  # whoever drew from the global generator in between
    train(with_lora(make_tiny(), KINDS[kind]), tmp_path / "cut", stop_at=8)
    again = with_lora(make_tiny(), KINDS[kind])
    assert train(again, tmp_path / "cut") == whole[6:]
    for (name, a), (_, b) in zip(language.trainable(), again.trainable(), strict=True):
        assert torch.equal(a, b), name
    learned = scores(language)
    for example, found in zip(EXAMPLES, np.split(learned, len(EXAMPLES)), strict=True):
        tokens = torch.from_numpy(example.tokens.astype(np.int64)).to(language.backbone.device)[None]
        with torch.no_grad():
            logits = language.model(input_ids=tokens).logits[0].log_softmax(-1).cpu().numpy()
        expected = [logits[at - 1, example.tokens[at]] for at in (3, 4)]
        np.testing.assert_allclose(found[3:], expected, atol=2e-5)
    np.testing.assert_allclose(scores(merge_adapters(language)), learned, atol=1e-4)


def test_what_is_adapted_and_how_it_is_scaled() -> None:
    some = with_lora(make_tiny(), LoraSettings(rank=4, alpha=8, targets=("q_proj", "v_proj"), rslora=True))
    adapted = [name for name, module in some.model.named_modules() if hasattr(module, "lora_A")]
    assert len(adapted) == 4 and all(name.endswith(("q_proj", "v_proj")) for name in adapted)
    module = some.model.get_submodule(adapted[0])
    assert module.scaling == {"default": pytest.approx(8 / math.sqrt(4))}


def test_only_updates_drop_anything() -> None:
    language = with_lora(make_tiny(), LoraSettings(rank=4, dropout=0.5))
    with torch.no_grad():
        for _, parameter in language.trainable():
            parameter.fill_(0.02)
    before = scores(language)
    assert np.array_equal(before, scores(language))
    still, losses = LearnerSettings(optimiser=OptimiserSettings(lr=1e-12, weight_decay=0.0)), []
    for seed in (0, 0, 1):
        learner = Learner(language.backbone, still, 1, seed=seed)
        losses.append(learner.update(EXAMPLES)["ce"])
    assert losses[0] == losses[1] != losses[2]  # drawn from the learner's seed
    assert learner.update(EXAMPLES)["ce"] != losses[2]  # and from the update's number
    assert losses[0] != pytest.approx(-before[before != 0].mean(), rel=1e-6)
    np.testing.assert_allclose(scores(language), before, atol=1e-5)


@pytest.mark.parametrize(
    ("targets", "message"),
    [(("lm_head", "q_proj"), "would take no part"), (("c_attn",), "c_attn")],
)
def test_an_adapter_that_would_not_learn_is_refused(targets: tuple[str, ...], message: str) -> None:
    with pytest.raises(OneiroError, match=message):
        with_lora(make_tiny(), LoraSettings(targets=targets))


def test_few_bits_need_an_adapter_and_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OneiroError, match=r"set model.lora.rank too"):
        build(ModelSettings, {"name": "org/model", "quantise": "4bit"})
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    folder = make_tiny().save(tmp_path / "model")
    with pytest.raises(OneiroError, match=r"needs the package bitsandbytes; run: pip install 'oneiro\[quantise\]'"):
        load(ModelSettings(name=str(folder), quantise="4bit", lora=LoraSettings()))


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_an_adapter_learns_on_weights_in_few_bits(bits: str, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    folder = make_tiny(width=64, mlp=128).save(tmp_path / "model")
    settings = ModelSettings(name=str(folder), quantise=bits, lora=LoraSettings(rank=4))  # type: ignore[arg-type]
    language = load(settings)
    small = sum(p.numel() * p.itemsize for n, p in language.model.named_parameters() if "q_proj.base" in n)
    assert small <= 2 * 64 * 64 * (0.5 if bits == "4bit" else 1)
    logged = train(language, tmp_path / "whole")
    assert logged[-1] < logged[0] - 0.1
    train(load(settings), tmp_path / "cut", stop_at=8)
    again = load(settings)
    assert train(again, tmp_path / "cut") == logged[6:]
    learned = scores(language)
    stage = settings.model_copy(update={"name": str(tmp_path / "whole"), "lora": None})
    np.testing.assert_allclose(scores(load(stage)), learned, atol=1e-4)
    with pytest.raises(OneiroError, match="merge_lora=false"):
        merge_adapters(language)
