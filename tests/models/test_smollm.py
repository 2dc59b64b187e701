"""SmolLM2 from its GGUF file: a whole folder or none, and a model that knows English."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer

from oneiro.errors import OneiroError
from oneiro.models import smollm

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
WIDTH, HEADS, LAYERS = 32, 2, 1


def write_tiny_gguf(path: Path, template: str | None = TEMPLATE) -> None:
    """A one-layer random Llama with a byte-level vocabulary, in the layout of SmolLM2's file."""
    vocabulary = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "ĠĠ"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(48)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3, 3, 3] + [1] * (len(vocabulary) - 3))
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    if template is not None:
        writer.add_chat_template(template)
    rng = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(vocabulary), WIDTH),
        "output_norm": (WIDTH,),
        "blk.0.attn_norm": (WIDTH,),
        "blk.0.ffn_norm": (WIDTH,),
        "blk.0.attn_q": (WIDTH, WIDTH),
        "blk.0.attn_k": (WIDTH // 2, WIDTH),
        "blk.0.attn_v": (WIDTH // 2, WIDTH),
        "blk.0.attn_output": (WIDTH, WIDTH),
        "blk.0.ffn_gate": (48, WIDTH),
        "blk.0.ffn_up": (48, WIDTH),
        "blk.0.ffn_down": (WIDTH, 48),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tiny")
    write_tiny_gguf(place / "tiny.gguf")
    return smollm.convert(place / "tiny.gguf", place / "model")


def test_a_converted_folder_loads_like_any_model_and_names_no_quantisation(tiny: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny)
    assert "quantization_config" not in json.loads((tiny / "config.json").read_text())
    assert model.config.tie_word_embeddings
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert model.dtype == torch.bfloat16
    assert torch.isfinite(model(torch.tensor([[5, 6, 7]])).logits).all()


def test_the_converted_tokenizer_splits_digits_before_spaces_as_smollm_does(tiny: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("a  12")["input_ids"])
    assert tokens == ["a", "ĠĠ", "1", "2"]
    assert tokenizer.decode(tokenizer("naïve  12\n")["input_ids"]) == "naïve  12\n"


def test_the_converted_tokenizer_keeps_its_template_and_special_tokens(tiny: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|im_end|>")
    text = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert text == "<|im_start|>user\nhi<|im_end|>\n"


def test_a_folder_is_whole_until_any_byte_of_it_changes(tiny: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(tiny, copy)
    assert smollm.whole(copy)
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    assert not smollm.whole(copy)
    shutil.copytree(tiny, copy, dirs_exist_ok=True)
    assert smollm.whole(copy)
    (copy / "tokenizer.json").unlink()
    assert not smollm.whole(copy)
    (copy / smollm.MANIFEST).write_text("{}")
    assert not smollm.whole(copy)


def test_a_cached_folder_is_returned_without_any_network(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm, "_from_hub", _never)
    monkeypatch.setattr(smollm, "_from_wheel", _never)
    assert smollm.fetch(tiny) == tiny


def test_the_default_place_is_under_oneiro_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEIRO_HOME", str(tmp_path))
    assert smollm.home() == tmp_path
    monkeypatch.delenv("ONEIRO_HOME")
    assert smollm.home() == Path.home() / ".cache" / "oneiro"


def test_a_folder_that_oneiro_did_not_make_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OneiroError, match="not made by oneiro"):
        smollm.fetch(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_missing_or_foreign_file_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="does not exist"):
        smollm.convert(tmp_path / "no.gguf", tmp_path / "out")
    (tmp_path / "zip.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(OneiroError, match="not a GGUF file"):
        smollm.convert(tmp_path / "zip.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_without_a_chat_template_leaves_nothing_behind(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "base.gguf", template=None)
    with pytest.raises(OneiroError, match="chat template"):
        smollm.convert(tmp_path / "base.gguf", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["base.gguf"]


def test_without_a_network_the_error_says_what_pip_said_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm, "_from_hub", lambda folder: False)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(OneiroError, match=r"No matching distribution.*by hand") as caught:
        smollm.fetch(tmp_path / "model")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def _never(folder: Path) -> Any:
    raise AssertionError("the network was used")


@pytest.fixture(scope="module")
def smol(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        yield smollm.fetch(tmp_path_factory.mktemp("smol") / "model")
    except OneiroError as error:
        pytest.skip(f"SmolLM2 cannot be fetched here: {error}")


@pytest.mark.slow
def test_the_fetched_model_finds_english_far_likelier_than_the_same_words_shuffled(smol: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(smol, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(smol)

    def perplexity(text: str) -> float:
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            return model(ids, labels=ids).loss.exp().item()

    english = "The capital of France is Paris, a large city on the river Seine."
    shuffled = "Seine a of large Paris the France on is city The river capital ,."
    assert perplexity(english) < 50
    assert perplexity(shuffled) > 20 * perplexity(english)


@pytest.mark.slow
def test_the_fetched_model_answers_a_question_and_stops(smol: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(smol, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(smol)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**ids, max_new_tokens=30, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert answer[-1] == tokenizer.eos_token_id == model.config.eos_token_id == 2
