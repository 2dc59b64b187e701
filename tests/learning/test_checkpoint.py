"""Checkpoints: whole or refused, in one naming for every model, resumed to the same bytes."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPTNeoXConfig, MixtralConfig, Qwen3MoeConfig

from oneiro.episode import Row, given
from oneiro.learning import checkpoint, sft
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel, LoraSettings, assemble, with_lora
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.tokenizer import FrameTokenizerSettings
from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
EXPERTS = {"num_key_value_heads": 2, "num_experts_per_tok": 2}
ARCHITECTURES = {
    "gpt-neox": GPTNeoXConfig(**SIZES, intermediate_size=48),
    "mixtral": MixtralConfig(**SIZES, **EXPERTS, intermediate_size=48, num_local_experts=4),
    "qwen3-moe": Qwen3MoeConfig(**SIZES, **EXPERTS, intermediate_size=48, moe_intermediate_size=32, num_experts=4),
}


class Killed(Exception):
    """Stands for a process that ends between two steps."""


def random_model(architecture: str) -> LanguageModel:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(ARCHITECTURES[architecture])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return assemble(architecture, model, None)


def rows() -> list[Row]:
    return [Row([given([i % 9, 2, 3]), given([10 + i % 5, 11], ce=1.0)]) for i in range(24)]


def train(language: LanguageModel, folder: Path, stop_at: int | None = None) -> list[tuple[int, float]]:
    chosen, logged = sft.SftSettings(batch=8, epochs=2.0, checkpoint_every=2), list[tuple[int, float]]()

    def log(step: int, values: dict[str, float]) -> None:
        if step == stop_at:
            raise Killed
        logged.append((step, values["ce"]))

    with contextlib.suppress(Killed):
        sft.train(language, rows(), rows()[:4], chosen, folder, 0, log)
    return logged


def weights(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_full_training_resumes_to_the_same_bytes_whatever_the_file_calls_its_weights(
    tmp_path: Path, architecture: str
) -> None:
    whole = train(random_model(architecture), tmp_path / "whole")
    train(random_model(architecture), tmp_path / "cut", stop_at=4)
    rest = train(random_model(architecture), tmp_path / "cut")
    assert [step for step, _ in rest] == [3, 4, 5, 6] and rest == whole[2:]
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_weights_in_several_files_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = type(random_model("gpt-neox").model).save_pretrained

    def in_parts(self: Any, folder: Path, **options: Any) -> None:
        save(self, folder, max_shard_size="20KB", **options)

    language = random_model("gpt-neox")
    monkeypatch.setattr(type(language.model), "save_pretrained", in_parts)
    checkpoint.save(tmp_path, 1, language, {})
    assert len(list(tmp_path.glob("step-000001/model/model-*.safetensors"))) > 1
    other = random_model("gpt-neox")
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.zero_()
    assert checkpoint.restore(tmp_path, other, {}) == 1
    for (name, a), b in zip(language.model.named_parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b), name


# Damage --------------------------------------------------------------------------------------------------------------


def learner_of(language: LanguageModel) -> dict[str, Learner]:
    return {"policy": Learner(language.backbone, LearnerSettings(), 10)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stage with checkpoints after 2 and 4 of 6 steps."""
    folder = tmp_path_factory.mktemp("trained")
    train(make_tiny(), folder, stop_at=5)
    assert [path.name for path in sorted(folder.glob("step-*"))] == ["step-000002", "step-000004"]
    return folder


def flip(path: Path, place: int = -5) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


def tensors(name: str, change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    """Change the tensors of a file, with a manifest that fits the change: the content alone must be refused."""

    def edit(folder: Path) -> None:
        found = load_file(folder / name)
        change(found)
        save_file({key: value.contiguous() for key, value in found.items()}, folder / name, {"format": "pt"})

    return edit


def state(data: Any) -> Callable[[Path], None]:
    return lambda folder: (folder / "state.json").write_text(json.dumps(data)) and None


def each(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict[str, torch.Tensor]], object]:
    return lambda found: found.update({key: change(value) for key, value in found.items()})


def one(suffix: str, value: Callable[[torch.Tensor], torch.Tensor] | None) -> Callable[..., object]:
    def change(found: dict[str, torch.Tensor]) -> None:
        key = next(key for key in found if key.endswith(suffix))
        if value is None:
            del found[key]
        else:
            found[key] = value(found[key])

    return change


MODEL, POLICY = "model/model.safetensors", "policy.safetensors"
BYTES: dict[str, Callable[[Path], object]] = {
    "a flipped bit in the weights": lambda folder: flip(folder / MODEL),
    "a flipped bit in the optimiser": lambda folder: flip(folder / POLICY),
    "a flipped bit in the config": lambda folder: flip(folder / "model/config.json"),
    "weights cut short": lambda folder: (folder / MODEL).write_bytes((folder / MODEL).read_bytes()[:1000]),
    "an empty optimiser file": lambda folder: (folder / POLICY).write_bytes(b""),
    "no weights": lambda folder: (folder / MODEL).unlink(),
    "no state": lambda folder: (folder / "state.json").unlink(),
    "no manifest": lambda folder: (folder / files.MANIFEST).unlink(),
    "an empty manifest": lambda folder: (folder / files.MANIFEST).write_text(""),
    "a list for a manifest": lambda folder: (folder / files.MANIFEST).write_text("[]"),
    "a nested manifest": lambda folder: (folder / files.MANIFEST).write_text("[" * 100_000),
    "numbers for files": lambda folder: (folder / files.MANIFEST).write_text('{"step": 4, "files": {"state.json": 5}}'),
    "another step's manifest": lambda folder: files.write_manifest(folder, step=2),
}
"""What the checksums notice."""
NAN, HALF, WHOLE = each(lambda t: t * torch.nan), each(lambda t: t.half()), each(lambda t: t.to(torch.int32))
SIGNED: dict[str, tuple[Callable[[Path], object], str]] = {
    "half weights": (tensors(MODEL, HALF), "is F16"),
    "whole weights": (tensors(MODEL, WHOLE), "is I32"),
    "weights that are not finite": (tensors(MODEL, NAN), "not finite"),
    "a weight missing": (tensors(MODEL, one("embed_tokens.weight", None)), "does not fit"),
    "optimiser not finite": (tensors(POLICY, NAN), "not finite"),
    "optimiser of whole numbers": (tensors(POLICY, WHOLE), "torch.int32"),
    "optimiser empty": (tensors(POLICY, lambda found: found.clear()), "optimiser state is empty"),
    "optimiser of another shape": (tensors(POLICY, one("/exp_avg", lambda t: t[:1])), "another shape"),
    "optimiser without a key": (tensors(POLICY, one("/exp_avg_sq", None)), "incomplete"),
    "optimiser of another model": (tensors(POLICY, lambda f: f.update({"optimiser/x/step": torch.ones(())})), "no 'x'"),
    "step 99": (state({"step": 99, "updates": {"policy": 4}}), "not of this step"),
    "step -1": (state({"step": -1, "updates": {"policy": 4}}), "not of this step"),
    "step 1": (state({"step": 1, "updates": {"policy": 4}}), "not of this step"),
    "step true": (state({"step": True, "updates": {"policy": 4}}), "not of this step"),
    "a list": (state([4]), "not of this step"),
    "no updates": (state({"step": 4}), "no updates of 'policy'"),
    "updates of nobody": (state({"step": 4, "updates": {}}), "no updates of 'policy'"),
    "updates as a list": (state({"step": 4, "updates": [4]}), "does not count"),
    "updates not a number": (state({"step": 4, "updates": {"policy": float("nan")}}), "does not count"),
}
"""What the content itself gives away, where somebody made the checksums fit."""


@pytest.mark.parametrize("damage", BYTES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(trained: Path, tmp_path: Path, damage: str) -> None:
    folder = shutil.copytree(trained, tmp_path / "stage")
    BYTES[damage](folder / "step-000004")
    said: list[str] = []
    language = make_tiny()
    learners = learner_of(language)
    assert checkpoint.restore(folder, language, learners, say=said.append) == 2
    assert learners["policy"].updates == 2
    assert len(said) == 1 and "step-000004 is damaged" in said[0] and "going on from step-000002" in said[0]
    assert [path.name for path in folder.glob("step-*")] == ["step-000002"]


@pytest.mark.parametrize("damage", BYTES)
def test_where_none_is_whole_the_folder_to_delete_is_named(trained: Path, tmp_path: Path, damage: str) -> None:
    folder = shutil.copytree(trained, tmp_path / "stage")
    shutil.rmtree(folder / "step-000002")
    BYTES[damage](folder / "step-000004")
    language = make_tiny()
    before = {name: p.clone() for name, p in language.backbone.named_parameters()}
    with pytest.raises(OneiroError, match=f"delete {folder} to start") as caught:
        checkpoint.restore(folder, language, learner_of(language))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
    assert all(torch.equal(before[name], p) for name, p in language.backbone.named_parameters())


@pytest.mark.parametrize("damage", SIGNED)
def test_a_checkpoint_that_no_run_could_have_written_is_refused_with_a_manifest_too(
    trained: Path, tmp_path: Path, damage: str
) -> None:
    folder = shutil.copytree(trained, tmp_path / "stage")
    shutil.rmtree(folder / "step-000002")
    edit, reason = SIGNED[damage]
    edit(folder / "step-000004")
    files.write_manifest(folder / "step-000004", step=4)
    language = make_tiny()
    with pytest.raises(OneiroError, match=reason) as caught:
        checkpoint.restore(folder, language, learner_of(language))
    assert "\n" not in str(caught.value) and "delete" in str(caught.value)


def test_a_run_that_falls_back_ends_with_the_same_bytes(trained: Path, tmp_path: Path) -> None:
    whole = train(make_tiny(), tmp_path / "whole")
    folder = shutil.copytree(trained, tmp_path / "stage")
    flip(folder / "step-000004" / MODEL)
    with pytest.warns(UserWarning, match="step-000004 is damaged"):
        rest = train(make_tiny(), folder)
    assert rest == whole[2:]
    assert weights(folder) == weights(tmp_path / "whole")


def test_a_checkpoint_of_another_model_is_one_line(trained: Path) -> None:
    with pytest.raises(OneiroError, match="is of another model"):
        checkpoint.restore(trained, make_tiny(width=64), {})


def test_a_disk_that_does_not_answer_costs_no_checkpoint(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(trained, tmp_path / "stage")

    def describe(path: Path, kind: str) -> dict[str, Any]:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(files, "describe", describe)
    with pytest.raises(OneiroError, match=r"cannot read .*: Input/output error"):
        checkpoint.restore(folder, make_tiny(), {})
    assert len(list(folder.glob("step-*"))) == 2


def test_weights_whose_numbers_are_cut_off_behind_a_whole_header_are_one_line(tmp_path: Path) -> None:
    language = make_tiny()
    weights = language.save(tmp_path / "model") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert files.tensors_of(weights)
    with pytest.raises(OneiroError, match=r"the checkpoint at .*model cannot be read \(.*\); delete it"):
        checkpoint.saved_weights(tmp_path / "model", language.model)


def test_adapters_are_checked_too(tmp_path: Path) -> None:
    language = with_lora(make_tiny(), LoraSettings(rank=2))
    checkpoint.save(tmp_path, 1, language, {})
    assert checkpoint.restore(tmp_path, with_lora(make_tiny(), LoraSettings(rank=2)), {}) == 1
    with pytest.raises(OneiroError, match="another model"):
        checkpoint.restore(tmp_path, with_lora(make_tiny(), LoraSettings(rank=4)), {})
    tensors("model/adapter_model.safetensors", NAN)(tmp_path / "step-000001")
    files.write_manifest(tmp_path / "step-000001", step=1)
    with pytest.raises(OneiroError, match="not finite"):
        checkpoint.restore(tmp_path, with_lora(make_tiny(), LoraSettings(rank=2)), {})


def test_the_last_few_stay_and_one_at_the_end(tmp_path: Path) -> None:
    language = make_tiny()
    for step in (1, 2, 3, 4):
        checkpoint.save(tmp_path, step, language, {}, keep=3)
    (tmp_path / "step-000009.bak").mkdir()  # a person's, not ours
    kept = ["step-000002", "step-000003", "step-000004"]
    assert [path.name for path in sorted(tmp_path.glob("step-*"))] == [*kept, "step-000009.bak"]
    assert checkpoint.last(tmp_path).name == "step-000004"
    assert [path.name for path in sorted(tmp_path.glob("step-*"))] == ["step-000004", "step-000009.bak"]


def test_a_state_that_a_killed_run_had_no_time_to_remove_goes_on_resuming(tmp_path: Path) -> None:
    language = make_tiny()
    for step in (2, 4, 6):
        checkpoint.save(tmp_path, step, language, {}, keep=3)
    assert checkpoint.restore(tmp_path, make_tiny(), {}) == 6
    assert [path.name for path in sorted(tmp_path.glob("step-*"))] == ["step-000004", "step-000006"]


def test_a_manifest_tells_step_checksums_and_tensors(trained: Path) -> None:
    manifest = files.read_json(trained / "step-000004" / files.MANIFEST)
    assert manifest["step"] == 4 and {MODEL, POLICY, "state.json"} <= set(manifest["files"])
    listed = manifest["tensors"][MODEL]["model.embed_tokens.weight"]
    assert listed == ["F32", list(make_tiny().model.get_input_embeddings().weight.shape)]


# Models that are loaded rather than resumed --------------------------------------------------------------------------


def test_weights_of_a_damaged_checkpoint_are_not_loaded_as_a_model_either(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "stage")
    assert languages.load(str(folder)).backbone.shape == make_tiny().backbone.shape
    flip(folder / "step-000004" / MODEL)
    with pytest.raises(OneiroError, match=r"damaged \(model/model.safetensors is not what was written\); take another"):
        languages.load(str(folder))


def test_a_saved_base_knows_its_bytes_and_foreign_manifests_mean_nothing(tmp_path: Path) -> None:
    make_tiny().save(tmp_path / "base", manifest=True)
    flip(tmp_path / "base" / "model.safetensors")
    with pytest.raises(OneiroError, match="damaged"):
        languages.load(str(tmp_path / "base"))
    make_tiny().save(tmp_path / "other")
    (tmp_path / "other" / files.MANIFEST).write_text('{"name": "an app"}')
    languages.load(str(tmp_path / "other"))


def test_a_damaged_video_tokenizer_is_not_loaded(tmp_path: Path) -> None:
    settings = FrameTokenizerSettings(height=16, width=16, patch=4, channels=(8, 8), layers=1, latent=4, levels=(3, 3))
    made = tokenizers.create(settings, 0, "cpu")
    checkpoint.write(tmp_path, 3, lambda part: made.save(part / "tokenizer") and None)
    tokenizers.load(tmp_path, "cpu")
    flip(tmp_path / "step-000003" / "tokenizer" / tokenizers.WEIGHTS)
    with pytest.raises(OneiroError, match="damaged"):
        tokenizers.load(tmp_path, "cpu")


def test_a_model_that_brings_code_is_refused_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny().save(tmp_path / "model")
    config = files.read_json(folder / "config.json")
    names = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    files.write_json(folder / "config.json", {**config, "model_type": "own", "auto_map": names})
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setattr("builtins.input", lambda *words: pytest.fail("a question was asked"))
    with pytest.raises(OneiroError, match=r"auto_map.*never run") as caught:
        languages.load(str(folder))
    assert "\n" not in str(caught.value) and not (tmp_path / "ran").exists()
    files.write_json(folder / "config.json", config)
    tokenizer = files.read_json(folder / "tokenizer_config.json")
    own = {"AutoTokenizer": ["code.Slow", "code.Fast"]}
    files.write_json(folder / "tokenizer_config.json", {**tokenizer, "tokenizer_class": "Own", "auto_map": own})
    with contextlib.suppress(OneiroError):
        languages.load(str(folder))
    assert not (tmp_path / "ran").exists()


def test_checksums_are_those_of_hashlib(tmp_path: Path) -> None:
    import hashlib

    data = np.random.default_rng(0).bytes(100_000)
    (tmp_path / "file").write_bytes(data)
    expected = {"size": 100_000, "blake2b": hashlib.blake2b(data).hexdigest()}
    assert files.describe(tmp_path / "file") == expected


def test_model_beside_the_checkpoints_is_always_the_newest_weights(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    language = make_tiny()
    for step in (1, 2):
        with torch.no_grad():
            language.backbone.norm.weight.fill_(step)
        checkpoint.save(tmp_path, step, language, {})
        assert (AutoModelForCausalLM.from_pretrained(tmp_path / "model").model.norm.weight == step).all()
    (tmp_path / "step-000002" / "policy.safetensors").write_bytes(b"")  # not in the manifest: damaged
    (tmp_path / "step-000002" / "state.json").write_text("{}")
    checkpoint.restore(tmp_path, language, {}, say=lambda line: None)
    assert (AutoModelForCausalLM.from_pretrained(tmp_path / "model").model.norm.weight == 1).all()
    language.save(tmp_path / "best" / "model")
    checkpoint.last(tmp_path)
    assert (tmp_path / "model").resolve() == tmp_path / "best" / "model"
