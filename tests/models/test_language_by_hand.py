"""Language models piece by piece: what a fresh one is, what a folder holds, and what is read from a configuration."""

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
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from oneiro.episode import Row, given
from oneiro.learning import checkpoint
from oneiro.learning.example import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models import language as languages
from oneiro.models import locate, quantise
from oneiro.models.attention import Causal, Prefill
from oneiro.models.backbone import Backbone, fuse, logit_scale, most_positions
from oneiro.models.chat import CHATML, ChatFormat
from oneiro.models.heads import OutputHead, ValueHead
from oneiro.models.language import LanguageModel, LoraSettings, ModelSettings, with_lora
from oneiro.models.prefix import PrefixGroup, part, prefix_groups, rows_of
from oneiro.models.settings import require_place, require_words
from oneiro.runtime import files
from oneiro.runtime.errors import Notice, OneiroError
from tests.conftest import TEXTS, make_tiny

SIZES = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 300,
}  # fmt: skip


def llama(**more: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **more})).eval()


# A fresh model --------------------------------------------------------------------------------------------------------


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


# Folders --------------------------------------------------------------------------------------------------------------


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
    assert languages.merged(again) is again


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
    merged = languages.merged(language)
    assert all(p.requires_grad for p in merged.model.parameters()) and not hasattr(merged.model, "peft_config")
    language.model.get_base_model = lambda: SimpleNamespace(is_quantized=True)
    with pytest.raises(OneiroError, match="tiny is quantised"):
        languages.merged(language)


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


# Settings -------------------------------------------------------------------------------------------------------------


def test_few_bits_need_an_adapter_and_a_model_that_has_weights() -> None:
    assert ModelSettings(name="org/model", quantise="4bit", lora=LoraSettings()).quantise == "4bit"
    with pytest.raises(ValueError, match="quantise=8bit leaves no weights that can learn"):
        ModelSettings(name="org/model", quantise="8bit")
    with pytest.raises(ValueError, match="nothing to quantise"):
        ModelSettings(quantise="4bit", lora=LoraSettings())
    # 10 x (300 + 2 x (40 + 60)) = 5,000.
    assert ModelSettings(layers=2, width=10, heads=5, mlp=20, vocabulary=300).parameters == 5000
    assert ModelSettings(name="org/model").parameters is None


def test_what_is_told_about_loading_in_few_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantise, "bitsandbytes", lambda what: what)
    four, eight = quantise.loading("4bit", torch.bfloat16), quantise.loading("8bit", torch.bfloat16)
    assert (four.load_in_4bit, four.load_in_8bit, eight.load_in_4bit, eight.load_in_8bit) == (True, False, False, True)
    assert (four.bnb_4bit_quant_type, four.bnb_4bit_use_double_quant) == ("nf4", True)
    assert four.bnb_4bit_compute_dtype == torch.bfloat16


# Backbone and heads ---------------------------------------------------------------------------------------------------


def test_a_shape_has_the_sizes_of_its_model() -> None:
    found = Backbone(llama(head_dim=6)).shape
    assert (found.layers, found.width, found.heads, found.kv_heads, found.head_dim) == (2, 16, 4, 2, 6)
    assert (found.mlp, found.vocabulary) == (24, 50)
    assert found.parameters == sum(p.numel() for p in llama(head_dim=6).parameters())
    assert Backbone(llama()).shape.head_dim == 4


def test_a_shape_knows_what_the_cache_of_transformers_keeps_of_a_token() -> None:
    model = llama(head_dim=6)
    cache = model(torch.arange(5)[None], use_cache=True).past_key_values
    numbers = sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)
    assert 5 * Backbone(model).shape.remembered == numbers


def test_a_shape_estimates_what_an_update_saves_of_a_token() -> None:
    """Numbers that autograd saves for 40 tokens less those for 20: what 20 tokens need, without weights and heads."""

    def saved(tokens: int) -> int:
        backbone, kept = Backbone(llama(head_dim=6)), dict[int, Tensor]()
        weights = {parameter.untyped_storage().data_ptr() for parameter in backbone.parameters()}

        def keep(tensor: Tensor) -> Tensor:
            if tensor.untyped_storage().data_ptr() not in weights:
                kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        row = Row([given([1]), given([2] * tokens, ce=1.0)])
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            Learner(backbone, LearnerSettings(), 1).update([Example.of(row)])
        return sum(tensor.untyped_storage().nbytes() // tensor.itemsize for tensor in kept.values())

    measured = (saved(40) - saved(20)) / 20
    assert 0.7 * measured < Backbone(llama(head_dim=6)).shape.kept < 1.4 * measured


def test_limits_are_read_from_a_configuration() -> None:
    def scale(**known: Any) -> float:
        return logit_scale(SimpleNamespace(**known))

    assert scale() == 1 and scale(logit_scale=None, logits_scaling=None) == 1
    assert scale(logit_scale=0.5) == 0.5 and scale(lm_head_multiplier=3.0) == 3.0
    assert (
        scale(logits_scaling=4.0) == 0.25 and scale(logit_scale=2.0, lm_head_multiplier=9.0, logits_scaling=8.0) == 0.25
    )

    def most(rope: Any, **known: Any) -> int | None:
        return most_positions(SimpleNamespace(rope_parameters=rope, **known))

    by_length = {"rope_type": "dynamic", "original_max_position_embeddings": 64}
    assert most(None, max_position_embeddings=512) == 512 and most(None) is None
    assert most({"rope_type": "llama3", "original_max_position_embeddings": 64}, max_position_embeddings=512) == 512
    assert most(by_length, max_position_embeddings=512) == 64 and most(by_length, max_position_embeddings=32) == 32
    assert most({"rope_type": "longrope"}, max_position_embeddings=512) == 512 and most(by_length) == 64
    kinds = {"full": {"rope_type": "default"}, "sliding": by_length}
    assert most(kinds, max_position_embeddings=512) == 64 and most({}, max_position_embeddings=512) == 512


def test_tables_of_rotations_grow_by_powers_of_two_up_to_the_models_positions() -> None:
    backbone = Backbone(llama())
    like = torch.zeros(1, 1, 16)
    sizes = []
    for last in (3, 255, 256, 299):
        (cos, sin), *_ = [found for found in backbone.rotations(torch.tensor([0, last]), like).values() if found]
        sizes.append(len(next(iter(backbone._tables.values()))[0]))
        angles = torch.tensor([0.0, last])[:, None] / 10000 ** (torch.arange(2) / 2)
        torch.testing.assert_close(cos[:, 0], angles.cos(), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(sin[:, 0], angles.sin(), atol=1e-4, rtol=1e-4)
    assert sizes == [256, 256, 300, 300]
    free = Backbone(llama(max_position_embeddings=4096))
    free.rotations(torch.tensor([600]), like)
    assert len(next(iter(free._tables.values()))[0]) == 1024
    free.most_positions = None
    free.rotations(torch.tensor([1024]), like)
    assert len(next(iter(free._tables.values()))[0]) == 2048


def test_fused_projections_hold_the_originals_in_order() -> None:
    linears = [nn.Linear(4, size) for size in (3, 2, 5)]
    before = [(linear.weight.detach().clone(), linear.bias.detach().clone()) for linear in linears]
    weight, bias = fuse(linears)
    assert bias is not None and torch.equal(weight, torch.cat([w for w, _ in before]))
    assert torch.equal(bias, torch.cat([b for _, b in before]))
    with torch.no_grad():
        weight.mul_(2)
        bias.add_(1)
    for linear, (w, b) in zip(linears, before, strict=True):
        assert torch.equal(linear.weight, 2 * w) and torch.equal(linear.bias, b + 1)
    assert fuse([nn.Linear(4, 2, bias=False)])[1] is None


def test_layers_are_computed_again_only_where_gradients_are_wanted_and_nothing_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backbone, calls = Backbone(llama()), []
    from oneiro.models import backbone as module

    def counted(block: Any, *arguments: Any, use_reentrant: bool) -> torch.Tensor:
        calls.append(use_reentrant)
        return block(*arguments)

    monkeypatch.setattr(module, "checkpoint", counted)
    tokens, positions = torch.arange(6)[None], torch.arange(6)
    assert backbone.gradient_checkpointing is False and backbone.waits is False and backbone.keeps == 1.0
    backbone(tokens, positions, Causal())
    assert calls == []
    backbone.gradient_checkpointing = True
    backbone(tokens, positions, Prefill())
    with torch.no_grad():
        backbone(tokens, positions, Causal())
    assert calls == []
    backbone(tokens, positions, Causal())
    assert calls == [False, False]


def test_a_head_turns_states_into_logits_and_knows_the_slope_of_its_cap() -> None:
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5)
    plain = hidden @ weight.T
    torch.testing.assert_close(OutputHead(weight).logits(hidden), plain)
    torch.testing.assert_close(OutputHead(weight, bias).logits(hidden), plain + bias)
    torch.testing.assert_close(OutputHead(weight, bias, 0.7).logits(hidden), 0.7 * torch.tanh((plain + bias) / 0.7))
    product = plain.clone()
    slope = OutputHead(weight, None, 0.7).finish_(product)
    x = plain.clone().requires_grad_()
    (0.7 * torch.tanh(x / 0.7)).sum().backward()
    torch.testing.assert_close(slope, x.grad)
    assert OutputHead(weight).finish_(plain) is None
    limited = Backbone(llama(output_vocab=20))
    assert limited.output_vocab == 20 and limited.head_weight.shape == (20, 16)
    limited.head.bias = nn.Parameter(torch.arange(50.0))
    assert limited.output.bias is not None and limited.output.bias.tolist() == list(range(20))
    head = ValueHead(4)
    assert head(torch.ones(2, 4).bfloat16()).tolist() == [0, 0]
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
        head.linear.bias.fill_(0.5)
    assert head(torch.eye(4)).tolist() == [1.5, 2.5, 3.5, 4.5]


def test_rows_are_grouped_by_equal_prefixes_in_order() -> None:
    groups = prefix_groups([np.array(p, np.int32) for p in ([1, 2], [3], [1, 2], [], [3], [1])])
    assert groups == [PrefixGroup(2, [0, 2]), PrefixGroup(1, [1, 4]), PrefixGroup(0, [3]), PrefixGroup(1, [5])]
    assert rows_of(groups) == [0, 2, 1, 4, 3, 5] and part(PrefixGroup(7, [4, 5, 6, 8]), 1, 3) == PrefixGroup(7, [5, 6])


# Chat -----------------------------------------------------------------------------------------------------------------


def rendered(language: LanguageModel, *messages: tuple[str, str]) -> list[int]:
    text = language.tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in messages], tokenize=False, add_generation_prompt=True
    )
    return language.encode(text)


def test_a_conversation_that_grows_is_the_template_rendered_anew(tiny: LanguageModel) -> None:
    chat = ChatFormat(tiny.tokenizer)
    assert chat.with_system and not chat.rewrites and chat.end == 2
    assert chat.opening("hello").tolist() == rendered(tiny, ("user", "hello"))
    opening = chat.opening("hello", "world")
    assert opening.tolist() == rendered(tiny, ("system", "world"), ("user", "hello")) and opening.dtype == np.int32
    reply = tiny.encode("Up")
    whole = rendered(tiny, ("user", "hello"), ("assistant", "Up"), ("user", "Down"))
    cut, ended = chat.next_user("Down", ended=False), chat.next_user("Down", ended=True)
    assert [*chat.opening("hello"), *reply, *cut] == whole and cut.tolist() == [2, *ended]
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Up"}]
    assert chat.whole(messages).tolist() == rendered(tiny, ("user", "hello"), ("assistant", "Up"))


NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}[{{ m.content }}]"
    "{% endfor %}>"
)
NO_THOUGHTS = "{% for m in messages %}[{{ m.content.split('</think>')[-1] }}]{% endfor %}"


@pytest.mark.parametrize(
    ("template", "system", "rewrites"),
    [(CHATML, True, False), (NO_SYSTEM, False, True), (NO_THOUGHTS, True, True)],
)
def test_what_a_template_can_and_does(tiny: LanguageModel, template: str, system: bool, rewrites: bool) -> None:
    tiny.tokenizer.chat_template = template
    chat = ChatFormat(tiny.tokenizer)
    assert (chat.with_system, chat.rewrites) == (system, rewrites)
    if not system:
        # What has no place of its own stands before the user's first words.
        assert tiny.decode(chat.opening("hello", "world")) == "[world\n\nhello]>"
        assert tiny.decode(chat.opening("hello")) == "[hello]>"


def test_a_template_that_loses_or_breaks_is_one_line(tiny: LanguageModel) -> None:
    tiny.tokenizer.chat_template = "always the same"
    with pytest.raises(OneiroError, match="drops message text"):
        ChatFormat(tiny.tokenizer)
    tiny.tokenizer.chat_template = "{{ raise_exception('never\nthis') }}"
    with pytest.raises(OneiroError, match=r"cannot be used \(never.*set another") as caught:
        ChatFormat(tiny.tokenizer)
    assert "\n" not in str(caught.value)


def test_the_forward_of_a_model_scales_what_its_configuration_scales() -> None:
    plain, scaled = Backbone(llama()), Backbone(llama(logit_scale=0.25))
    tokens, positions = torch.arange(5)[None], torch.arange(5)
    torch.testing.assert_close(scaled(tokens, positions, Causal()), 0.25 * plain(tokens, positions, Causal()))
    expected = F.log_softmax(llama()(tokens).logits, -1)
    found = F.log_softmax(plain.output.logits(plain(tokens, positions, Causal())), -1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


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
        languages.initialised(Unmade, SimpleNamespace(hidden_size=100), seed) for seed in (3, 2**64 + 3, 4)
    )
    assert (one.norm.weight == 1).all() and not one.o_proj.weight.any() and not one.down_proj.weight.any()
    for name, std in (("embed", 0.05), ("up_proj", 0.1)):
        weight = getattr(one, name).weight
        assert (
            float(weight.detach().std()) == pytest.approx(std, rel=0.02) and abs(float(weight.detach().mean())) < 0.002
        )
        assert torch.equal(weight, getattr(same, name).weight)
        assert not torch.equal(weight, getattr(other, name).weight)


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
