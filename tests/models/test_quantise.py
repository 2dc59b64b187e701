"""Models whose weights have few bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from oneiro.models import language as languages
from oneiro.models import quantise
from oneiro.models.language import LoraSettings, ModelSettings
from tests.conftest import make_tiny


def test_what_is_told_about_loading_in_few_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantise, "bitsandbytes", lambda what: what)
    four, eight = quantise.loading("4bit", torch.bfloat16), quantise.loading("8bit", torch.bfloat16)
    assert (four.load_in_4bit, four.load_in_8bit, eight.load_in_4bit, eight.load_in_8bit) == (True, False, False, True)
    assert (four.bnb_4bit_quant_type, four.bnb_4bit_use_double_quant) == ("nf4", True)
    assert four.bnb_4bit_compute_dtype == torch.bfloat16


def test_weights_in_few_bits_are_loaded_where_they_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quantised model cannot be moved: it is put in place by the loader, and asked for with its bits."""
    folder, asked = make_tiny().save(tmp_path / "model"), dict[str, Any]()
    load = AutoModelForCausalLM.from_pretrained

    def pretend(source: str, **how: Any) -> Any:
        asked.update(how)
        model = load(source, dtype=how["dtype"])

        def stay(*place: Any) -> Any:
            raise ValueError("a quantised model cannot be moved")

        model.to = stay
        return model

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", pretend)
    monkeypatch.setattr(quantise, "loading", lambda bits, kind: (bits, kind))
    settings = ModelSettings(name=str(folder), quantise="8bit", lora=LoraSettings(rank=2))
    language = languages.load(settings, "cpu")
    assert asked == {
        "dtype": torch.float32,
        "trust_remote_code": False,
        "quantization_config": ("8bit", torch.float32),
        "device_map": {"": torch.device("cpu")},
    }
    assert all("lora_" in name for name, p in language.model.named_parameters() if p.requires_grad)
    asked.clear()
    with pytest.raises(ValueError, match="cannot be moved"):
        languages.load(str(folder), "cpu")
    assert asked == {"dtype": torch.float32, "trust_remote_code": False}
