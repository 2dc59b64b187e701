"""Settings and calls that make no sense are refused with a word, before any work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from oneiro.learning.stages import Selection
from oneiro.models.language import LanguageModel, LoraSettings, with_lora
from oneiro.recipe import build, load
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.fleet import Fleet
from oneiro.sampling.settings import FleetSettings
from oneiro.systems.policy_eval.agreement import agreement, mean_gap
from oneiro.tasks.textgame.data import Balanced, GoldMix
from oneiro.tasks.video import measures
from oneiro_web.templates.registry import TEMPLATES

HELD_OUT = next(template.name for template in TEMPLATES.values() if template.held_out)
REFUSED = [
    ("rlvr/physics", "data.context=[0,6]", "rising multiples of 4"),
    ("rlvr/physics", "data.context=[8,4]", "rising multiples of 4"),
    ("rlvr/physics", "data.context=[4]", "two or more rising"),
    ("rlvr/web-page", "data.train=a.parquet", "give both parquet files"),
    ("rlvr/web-page", "task.numbers=window task.brief=false", "needs task.brief=true"),
    ("plan/web", "world=frozen-lake", "plays the world 'web'"),
    ("webrl/sandbox", f"tasks.trained=[{HELD_OUT}]", "no template is left to train on"),
    ("webrl/sandbox", "world=frozen-lake", "grows tasks of the world 'web'"),
    ("webrl/sandbox", "dialogue.brief=false", "set dialogue.context=actions, brief=true"),
]


@pytest.mark.parametrize(("recipe", "overrides", "words"), REFUSED)
def test_settings_are_refused_in_one_line(recipe: str, overrides: str, words: str) -> None:
    with pytest.raises(OneiroError, match=words) as caught:
        load(recipe, overrides.split())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["node1:8000", "ftp://node1", "http://", "http://node1:8000/v1"])
def test_an_address_of_a_rollout_server_has_a_host_and_no_path(url: str) -> None:
    with pytest.raises(OneiroError, match="is no address such as http://node1:8000"):
        build(FleetSettings, {"urls": [url]})
    assert build(FleetSettings, {"urls": ["http://node1:8000/"]}).urls == ("http://node1:8000/",)


def test_servers_take_whole_weights(tiny: LanguageModel, tmp_path: Path) -> None:
    adapted = with_lora(tiny, LoraSettings(rank=2))
    with pytest.raises(OneiroError, match="servers take whole weights"):
        Fleet(adapted, FleetSettings(urls=("http://127.0.0.1:1",)), tmp_path)


def test_samplers_need_rows() -> None:
    with pytest.raises(OneiroError, match="no transitions to sample from"):
        Balanced([])
    with pytest.raises(OneiroError, match="GoldMix needs some"):
        GoldMix([SimpleNamespace(gold=False)] * 3, per_hundred=40.0)  # type: ignore[list-item]
    with pytest.raises(OneiroError, match="between 0 and 1"):
        Balanced([], changed_share=1.5)


def test_a_metric_that_is_not_measured_selects_nothing() -> None:
    own: Any = object.__new__(Selection)
    own.metric, own.validate = "validation_f1", lambda: {"validation_reward": 1.0}
    with pytest.raises(OneiroError, match=r"no 'validation_f1' among the validation metrics \(validation_reward\)"):
        own._validate(3)


def test_outcomes_of_unlike_shapes_do_not_agree_or_disagree() -> None:
    with pytest.raises(ValueError, match="two arrays"):
        agreement(simulated=np.zeros((2, 3)), real=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="two arrays"):
        agreement(simulated=np.zeros((0, 3)), real=np.zeros((0, 3)))
    with pytest.raises(ValueError, match="two lists of one length"):
        mean_gap(simulated=[0.5], real=[0.5, 0.25])


def test_frames_are_at_least_as_wide_as_the_window_of_ssim() -> None:
    fits = torch.zeros(1, 3, measures.WINDOW, measures.WINDOW)
    assert measures.ssim(fits, fits).tolist() == pytest.approx([1.0])
    with pytest.raises(ValueError, match="SSIM's window"):
        measures.ssim(fits[..., 1:], fits[..., 1:])
