"""Language models: made, saved, loaded, adapted, with numbers worked by hand."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoTokenizer
from transformers.utils import logging

from oneiro.learning import checkpoint
from oneiro.models import language as languages
from oneiro.models.chat import CHATML
from oneiro.models.language import LanguageModel, LoraSettings, ModelSettings, with_lora
from oneiro.models.settings import require_words
from oneiro.runtime import files
from oneiro.runtime.errors import Notice, OneiroError
from tests.conftest import TEXTS, make_tiny

NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}[{{ m.content }}]"
    "{% endfor %}>"
)


def test_a_fresh_tiny_model_is_a_llama_with_these_sizes_and_weights() -> None:
    settings = ModelSettings(layers=2, width=64, heads=4, mlp=96, vocabulary=300)
    made = languages.create_tiny(settings, TEXTS, seed=3, tags=["<go>", "<stop>"])
    config = made.model.config
    assert made.name == "tiny" and config.vocab_size == len(made.tokenizer) <= 300
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers) == (64, 96, 2)
    assert (config.num_attention_heads, config.num_key_value_heads, config.max_position_embeddings) == (4, 4, 4096)
    assert (config.rms_norm_eps, config.tie_word_embeddings, config.bos_token_id) == (1e-5, True, None)
    assert (config.eos_token_id, config.pad_token_id) == (2, 0) and made.end_tokens == [2]
    assert made.tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert len(made.encode("<go>")) == len(made.encode("<stop>")) == 1 and not made.model.training
    for name, parameter in made.model.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == 1).all(), name
        elif "o_proj" in name or "down_proj" in name:
            assert not parameter.any(), name
        else:
            wanted = 0.05 if "embed" in name else 64**-0.5
            assert (
                float(parameter.detach().std()) == pytest.approx(wanted, rel=0.1)
                and abs(float(parameter.detach().mean())) < 0.02
            )
    again = languages.create_tiny(settings, TEXTS, seed=3, tags=["<go>", "<stop>"])
    other = languages.create_tiny(settings, TEXTS, seed=4, tags=["<go>", "<stop>"])
    assert torch.equal(made.backbone.head_weight, again.backbone.head_weight)
    assert not torch.equal(made.backbone.head_weight, other.backbone.head_weight)


def test_the_trained_tokenizer_keeps_words_digits_and_symbols_apart() -> None:
    tokenizer = languages.train_tokenizer(["hello hello hello 12 || ||"] * 20, 400, ["<go>"])
    cut = tokenizer.convert_ids_to_tokens(tokenizer.encode("hello 12||\nx<go>", add_special_tokens=False))
    assert cut == ["hello", "Ġ1", "2", "|", "|", "Ċ", "x", "<go>"] and len(tokenizer) <= 400
    assert tokenizer.decode(tokenizer.encode(" naïve\t12 ", add_special_tokens=False)) == " naïve\t12 "
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.chat_template) == (
        "<|im_end|>", "<|endoftext|>", CHATML,
    )  # fmt: skip
    small = languages.train_tokenizer(["hello hello hello 12 || ||"] * 20, 265, ["<go>"])
    assert len(small) == 265


def test_ends_texts_and_templates_of_an_assembled_model(tiny: LanguageModel) -> None:
    tiny.model.generation_config.eos_token_id = [9, 2, 5]
    assert tiny.end_tokens == [2, 5, 9]
    tiny.model.generation_config.eos_token_id = 7
    assert tiny.end_tokens == [2, 7]
    tiny.model.generation_config.eos_token_id = None
    assert tiny.end_tokens == [2]
    assert tiny.encode("<|im_end|>hello") == [2, *tiny.encode("hello")]
    assert tiny.decode(np.array([2, *tiny.encode("hi !")])) == "<|im_end|>hi !"
    again = languages.assemble("mine", tiny.model.train(), tiny.tokenizer)
    assert not again.model.training and again.name == "mine"
    count = sum(p.numel() for p in tiny.model.parameters())
    assert tiny.about == f"model tiny: {count:,} parameters, vocabulary {len(tiny.tokenizer):,}"


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "folder"

    def write(text: str) -> Any:
        return lambda part: (part / "a.txt").write_text(text)

    assert languages.write_folder(target, write("one")) == target
    assert sorted(p.name for p in target.iterdir()) == ["a.txt"] and not (target / files.MANIFEST).exists()
    # An older try left its parts behind; they go, and the folder is replaced.
    for leftover in (".folder.part", ".folder.old"):
        (target.parent / leftover).mkdir()
        (target.parent / leftover / "b.txt").write_text("old")
    languages.write_folder(str(target), write("two"), {"step": 4})
    assert (target / "a.txt").read_text() == "two" and files.damage(target, step=4) is None
    assert [p.name for p in target.parent.iterdir()] == ["folder"]

    def fails(part: Path) -> None:
        (part / "a.txt").write_text("three")
        raise OSError(28, "No space left on device")

    with pytest.raises(OneiroError, match=r"cannot write .*folder: No space left on device; free some space"):
        languages.write_folder(target, fails)
    assert (target / "a.txt").read_text() == "two" and [p.name for p in target.parent.iterdir()] == ["folder"]
    # Stopped between the two renames: the old folder comes back where writing fails again.
    target.rename(target.parent / ".folder.old")
    with pytest.raises(OneiroError):
        languages.write_folder(target, fails)
    assert (target / "a.txt").read_text() == "two"


def test_a_saved_model_has_its_tokenizer_its_metadata_and_a_manifest_if_asked(tmp_path: Path) -> None:
    tiny = make_tiny()
    plain = tiny.save(tmp_path / "plain")
    assert not (plain / "oneiro.json").exists() and not (plain / files.MANIFEST).exists()
    tiny.metadata = {"kind": "agent"}
    listed = tiny.save(tmp_path / "listed", manifest=True)
    assert json.loads((listed / "oneiro.json").read_text()) == {"kind": "agent"} and files.damage(listed) is None
    assert AutoTokenizer.from_pretrained(listed).chat_template == CHATML
    assert "lm_head.weight" not in files.tensors_of(listed / "model.safetensors")
    names = [name for name, _ in tiny.trainable()]
    assert len(names) == len(set(names)) == 2 + 2 * 6 and "embedding.weight" in names and "head.weight" not in names


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_weights_can_be_read_by_whom_the_umask_lets_read(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        saved = make_tiny().save(tmp_path / "model", manifest=True)
        languages.write_state(tmp_path / "state.safetensors", {"a": torch.zeros(2)})
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (*saved.iterdir(), tmp_path / "state.safetensors")}
    assert modes["model.safetensors"] == mode and set(modes.values()) == {mode}


def test_a_damaged_copy_is_refused_beside_and_below_its_manifest(tmp_path: Path) -> None:
    folder = make_tiny().save(tmp_path / "step" / "model")
    languages.refuse_damaged(folder)
    (tmp_path / "step" / "other.txt").write_text("x")
    files.write_manifest(tmp_path / "step", step=1)
    (tmp_path / "step" / "other.txt").write_text("changed, and none of the model's business")
    languages.refuse_damaged(folder)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config + " ")
    with pytest.raises(
        OneiroError, match=r"is damaged \(model/config.json is not what was written\).*delete \S+step and"
    ):
        languages.load(str(folder))
    (folder / "config.json").write_text(config)
    (tmp_path / "step" / files.MANIFEST).write_text('{"somebody": "else"}')
    languages.refuse_damaged(folder)
    files.write_manifest(folder)
    (folder / "config.json").write_text(config + " ")
    with pytest.raises(OneiroError, match=r"config.json is not what was written"):
        languages.refuse_damaged(folder)


def test_merging_needs_a_source_and_an_empty_place(tmp_path: Path) -> None:
    base = make_tiny()
    base.save(tmp_path / "base")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(OneiroError, match="full exists and is not empty"):
        languages.merge(tmp_path / "base", tmp_path / "full")
    with pytest.raises(OneiroError, match=r"no folder at .*nothing"):
        languages.merge(tmp_path / "nothing", tmp_path / "new")
    (tmp_path / "empty").mkdir()
    assert languages.merge(tmp_path / "base", tmp_path / "empty") == tmp_path / "empty"
    again = languages.load(str(tmp_path / "empty"))
    assert torch.equal(again.backbone.head_weight, base.backbone.head_weight)
    assert languages.merge_adapters(again) is again


def test_an_adapter_has_the_settings_that_were_asked_for(tmp_path: Path) -> None:
    settings = LoraSettings(rank=3, alpha=5, targets=("q_proj", "down_proj"), dropout=0.25, rslora=True, dora=True)
    base = make_tiny()
    torch.manual_seed(7)
    before = torch.rand(1)
    torch.manual_seed(7)
    language = with_lora(base, settings)
    assert torch.equal(torch.rand(1), before)
    config = language.model.peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout, config.use_rslora, config.use_dora) == (
        3,
        5,
        0.25,
        True,
        True,
    )
    assert config.target_modules == {"q_proj", "down_proj"} and config.task_type == "CAUSAL_LM"
    assert not language.model.training
    other = with_lora(make_tiny(), settings)
    for (name, a), (_, b) in zip(language.trainable(), other.trainable(), strict=True):
        assert torch.equal(a, b), name
    assert with_lora(language, settings) is language and with_lora(other, None) is other
    every = with_lora(make_tiny(), LoraSettings(rank=2))
    assert {name.split(".lora_")[0].rsplit(".", 1)[-1] for name, _ in every.trainable()} >= {"out", "down"}
    assert every.model.peft_config["default"].use_rslora is False
    with pytest.raises(OneiroError, match=r"no projection of tiny is called .* \(nothing\)"):
        with_lora(make_tiny(), LoraSettings(targets=("nothing",)))
    with pytest.raises(OneiroError, match=r"an adapter on '.*' would take no part"):
        with_lora(make_tiny(), LoraSettings(targets=("q_proj", "lm_head")))
    language.save(tmp_path / "checkpoints" / "rl-x" / "step-000001" / "model")
    assert languages.is_adapter(str(tmp_path)) and not languages.is_adapter(str(tmp_path / "none"))
    merged = languages.merge_adapters(language)
    assert all(p.requires_grad for p in merged.model.parameters()) and not hasattr(merged.model, "peft_config")
    language.model.get_base_model = lambda: SimpleNamespace(is_quantized=True)
    with pytest.raises(OneiroError, match="tiny is quantised"):
        languages.merge_adapters(language)


def test_a_folder_says_what_is_wrong_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_tiny().save(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "model_type": "odd", "auto_map": {"AutoConfig": "odd.Odd"}})
    )
    with pytest.raises(OneiroError, match="needs Python code that comes with it"):
        languages.load(str(folder))
    (folder / "config.json").write_text(json.dumps(config))
    require_words(str(folder))
    for path in folder.glob("*token*"):
        path.unlink()
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    assert languages.load(str(folder)).tokenizer is None
    with pytest.raises(OneiroError, match="has no tokenizer"):
        require_words(str(folder))
    require_words("org/a-name-of-the-hub")  # no folder: the hub decides
    with pytest.raises(OneiroError, match=r"weights at .* cannot be read"):
        languages.read_state(tmp_path / "none.safetensors", "weights")
    tensors = {"a": torch.arange(6.0).view(2, 3).T, "b": torch.ones(1, requires_grad=True)}
    languages.write_state(tmp_path / "some.safetensors", tensors)
    found = languages.read_state(tmp_path / "some.safetensors", "weights")
    assert found.keys() == {"a", "b"} and torch.equal(found["a"], tensors["a"])


class Unmade(nn.Module):
    """An architecture whose own first weights are all 7."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        sizes = {"embed": (400, 100), "up_proj": (100, 400), "o_proj": (100, 100), "down_proj": (100, 100)}
        for name, size in sizes.items():
            layer = nn.Linear(1, 1, bias=False)
            layer.weight = nn.Parameter(torch.full(size, 7.0))
            self.add_module(name, layer)
        self.norm = nn.LayerNorm(100, bias=False)
        nn.init.constant_(self.norm.weight, 7.0)


def test_first_weights_are_our_own() -> None:
    """Norms 1, what a block adds 0, embeddings of spread 0.05, others of 1 / sqrt(width); all from a seed."""
    one, same, other = (
        languages.initialise(Unmade, SimpleNamespace(hidden_size=100), seed) for seed in (3, 2**64 + 3, 4)
    )
    assert (one.norm.weight == 1).all() and not one.o_proj.weight.any() and not one.down_proj.weight.any()
    for name, std in (("embed", 0.05), ("up_proj", 0.1)):
        weight = getattr(one, name).weight
        assert (
            float(weight.detach().std()) == pytest.approx(std, rel=0.02) and abs(float(weight.detach().mean())) < 0.002
        )
        assert torch.equal(weight, getattr(same, name).weight)
        assert not torch.equal(weight, getattr(other, name).weight)


def test_loading_resuming_and_saving_show_no_bar_of_the_library(tmp_path: Path) -> None:
    language = make_tiny()
    folder = language.save(tmp_path / "model")
    for work in (
        lambda: languages.load(str(folder)),
        lambda: checkpoint.load_weights(folder, language),
        lambda: language.save(tmp_path / "again"),
    ):
        logging.enable_progress_bar()
        work()
        assert not logging.is_progress_bar_enabled()  # ours say what is going on


def test_a_tokenizer_without_a_template_gets_chatml_and_a_line(tiny: LanguageModel, tmp_path: Path) -> None:
    tiny.tokenizer.chat_template = tiny.tokenizer.pad_token = None
    folder, exported = tiny.save(tmp_path / "bare"), tmp_path / "exported"
    with pytest.warns(Notice, match=r"bare' has no chat template: ChatML is used.*model\.chat_template=chatml"):
        language = languages.load(str(folder))
    assert language.tokenizer.chat_template == CHATML
    # What was chosen needs no line: by the setting, or in a folder that was saved with it.
    (tmp_path / "own.jinja").write_text(NO_SYSTEM)
    for name, template in (("chatml", CHATML), (str(tmp_path / "own.jinja"), NO_SYSTEM)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            chosen = languages.load(ModelSettings(name=str(folder), chat_template=name))
            chosen.save(exported)
            assert languages.load(str(exported)).tokenizer.chat_template == template
    # Nothing else of the tokenizer is changed.
    assert languages.load(str(exported)).tokenizer.pad_token is None
    with pytest.raises(OneiroError, match=r"model\.chat_template: cannot read 'nowhere\.jinja'"):
        languages.load(ModelSettings(name=str(folder), chat_template="nowhere.jinja"))
