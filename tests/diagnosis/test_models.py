"""`oneiro check-model`: right models pass every check, wrong ones are found out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from oneiro.diagnosis import models as model_check
from oneiro.diagnosis.models import ARCHITECTURES, check_model
from oneiro.models import backbone
from oneiro.models.admission import first_kinds, small_config
from oneiro.runtime.errors import OneiroError


@pytest.mark.parametrize(("name", "forward"), [("gemma3_text", "own"), ("mixtral", "layers")])
def test_a_supported_architecture_passes_every_check(name: str, forward: str) -> None:
    found = check_model(name)
    assert found.passed and found.forward == forward
    assert set(found.differences) == {"logits", "sampled_logprobs", "gradients", "resumed", "merged_adapter"}
    assert found.differences["resumed"] == 0


@pytest.mark.parametrize("name", ["lfm2", "diffllama", "deepseek_v3"])
def test_an_architecture_that_would_be_computed_wrongly_is_refused(name: str) -> None:
    found = check_model(name)
    assert found.refused and not found.passed and not found.differences


def test_a_configuration_is_checked_as_a_small_model_of_its_kind(tmp_path: Path) -> None:
    LlamaConfig(attention_bias=True, mlp_bias=True).save_pretrained(tmp_path)  # 7 billion parameters, if built
    assert check_model(str(tmp_path / "config.json")).passed


def test_a_wrong_gradient_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = backbone.after_attention
    monkeypatch.setattr(backbone, "after_attention", lambda hidden, mixed, *rest: whole(hidden, mixed.detach(), *rest))
    found = check_model("llama")
    assert found.differences["logits"] < 1e-5 and found.differences["gradients"] > 1e-2
    assert not found.passed


def test_what_is_no_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-thing"}))
    for source, line in [("lama", "did you mean 'llama'"), (str(tmp_path), "cannot read a model configuration")]:
        with pytest.raises(OneiroError, match=line) as caught:
            check_model(source)
        assert "\n" not in str(caught.value)


def test_a_small_model_has_every_kind_of_layer() -> None:
    assert first_kinds(["a", "a", "a", "b", "a", "c"], 4) == ["a", "a", "b", "c"]
    from transformers import Gemma3TextConfig

    small = small_config(Gemma3TextConfig())
    assert set(small.layer_types) == {"sliding_attention", "full_attention"} and small.sliding_window == 8


def test_the_documented_table_has_every_architecture() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    rows = {
        line.split("|")[1].strip(): re.findall(r"`(\w+)`", line) for line in page.splitlines() if line.count("|") == 3
    }
    verdicts = {name: verdict for verdict, names in rows.items() for name in names if name in ARCHITECTURES}
    assert sorted(verdicts) == sorted(ARCHITECTURES) and len(verdicts) >= 40
    assert {name for name, verdict in verdicts.items() if verdict == "fast path"} == set(backbone.FAMILIES)


def test_random_weights_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    model_check.random_model(small_config(LlamaConfig()))
    assert torch.equal(before, torch.random.get_rng_state())
