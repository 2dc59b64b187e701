"""Checkpoints: whole or refused, in one naming for every model, resumed to the same bytes."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPTNeoXConfig, MixtralConfig, Qwen3MoeConfig

from oneiro.episode import Row, given
from oneiro.learning import checkpoint, sft
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.optimiser import Optimiser, OptimiserSettings
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel, LoraSettings, assemble, with_lora
from oneiro.models.locate import BEST
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


NOT_A_NUMBER = float("nan")


@pytest.mark.parametrize(
    ("state", "step", "problem"),
    [
        ({"step": 3}, 3, None),
        ({"step": 0, "updates": {"policy": 0}, "applied": {}}, 0, None),
        ({"step": 3, "updates": {"policy": 2, "critic": 0}, "applied": {"policy": 2}}, 3, None),
        ([3], 3, "not of this step"),
        ({}, 3, "not of this step"),
        ({"step": 2}, 3, "not of this step"),
        ({"step": True}, 1, "not of this step"),
        ({"step": 3.0}, 3, "not of this step"),
        ({"step": -1}, -1, "not of this step"),
        ({"step": 3, "updates": [2]}, 3, "count updates"),
        ({"step": 3, "updates": {"policy": 2, "critic": -1}}, 3, "count updates"),
        ({"step": 3, "updates": {"policy": 2, "critic": True}}, 3, "count updates"),
        ({"step": 3, "updates": {"policy": 2, "critic": "2"}}, 3, "count updates"),
        ({"step": 3, "applied": 2}, 3, "count updates"),
        ({"step": 3, "applied": {"policy": 1.5}}, 3, "count updates"),
    ],
)
def test_the_state_of_a_step(tmp_path: Path, state: Any, step: int, problem: str | None) -> None:
    (tmp_path / "state.json").write_text(json.dumps(state))
    found = checkpoint.wrong_state(tmp_path, step)
    assert found is None if problem is None else problem in str(found)


def moments(name: str = "w", *shape: int, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    full = {kind: torch.ones(shape or (2, 3)) for kind in ("exp_avg", "exp_avg_sq")} | {"step": torch.tensor(4.0)}
    return {f"{name}/{kind}": tensor for kind, tensor in (full | more).items()}


def without(state: dict[str, torch.Tensor], *keys: str) -> dict[str, torch.Tensor]:
    return {key: tensor for key, tensor in state.items() if key not in keys}


MASTER = {"w/master": torch.ones(2, 3)}


@pytest.mark.parametrize(
    ("tensors", "applied", "problem"),
    [
        (moments(), 1, None),
        (moments() | MASTER | moments("b", 2), 1, None),
        (moments() | {"b/master": torch.ones(2)}, 1, None),  # one of them was not part of an update yet
        ({}, 0, None),
        (MASTER, 0, None),
        (moments(), 0, None),
        ({"w/momentum_buffer": torch.ones(6)}, 1, None),  # Muon's, which is not checked against a shape
        ({"w/state1": torch.ones(6, dtype=torch.uint8), "w/step": torch.tensor(3)}, 1, None),  # eight bits
        ({}, 1, "is empty"),
        (MASTER, 1, "is empty"),
        (moments("other"), 1, "knows no 'other'"),
        (moments("w", 3, 2), 1, "another shape"),
        (moments() | {"w/master": torch.ones(6)}, 1, "another shape"),
        (moments(exp_avg=torch.tensor([[1.0, 1.0, NOT_A_NUMBER]] * 2)), 1, "not finite"),
        (moments(step=torch.tensor(NOT_A_NUMBER)), 1, "not finite"),
        (moments(exp_avg_sq=torch.ones(2, 3, dtype=torch.int32)), 1, "int32"),
        (moments() | {"w/master": torch.ones(2, 3, dtype=torch.int32)}, 1, "int32"),
        ({"w/step": torch.tensor(4.0)}, 1, "'w' is incomplete"),
        ({"w/step": torch.tensor(4.0)} | MASTER, 1, "'w' is incomplete"),
        (without(moments(), "w/step"), 1, "'w' is incomplete"),
        (without(moments(), "w/exp_avg"), 1, "'w' is incomplete"),
        (without(moments(), "w/exp_avg_sq"), 1, "'w' is incomplete"),
        (moments() | without(moments("b", 2), "b/exp_avg"), 1, "'b' is incomplete"),
    ],
)
def test_the_state_of_an_optimiser(tensors: dict[str, torch.Tensor], applied: int, problem: str | None) -> None:
    optimiser: Any = SimpleNamespace(shapes={"w": torch.Size([2, 3]), "b": torch.Size([2])})
    if problem is None:
        checkpoint.check_optimiser(Path("here"), optimiser, tensors, applied)
        return
    with pytest.raises(OneiroError, match=problem):
        checkpoint.check_optimiser(Path("here"), optimiser, tensors, applied)


@pytest.mark.parametrize(
    ("saved", "problem"),
    [
        ({"a": torch.ones(2), "n": torch.tensor([1])}, None),
        ({"a": torch.ones(2).bfloat16(), "n": torch.tensor([1])}, None),
        ({"a": torch.ones(2)}, "another model .see 'n'"),
        ({"a": torch.ones(2), "n": torch.tensor([1]), "z": torch.ones(1)}, "another model .see 'z'"),
        ({"a": torch.ones(3), "n": torch.tensor([1])}, "another model .see 'a'"),
        ({"a": torch.ones(2, dtype=torch.int64), "n": torch.tensor([1])}, "'a' holds torch.int64"),
        ({"a": torch.ones(2), "n": torch.tensor([1.0])}, "'n' holds torch.float32"),
        ({"a": torch.tensor([1.0, NOT_A_NUMBER]), "n": torch.tensor([1])}, "'a' holds .* not finite"),
    ],
)
def test_weights_of_a_model(saved: dict[str, torch.Tensor], problem: str | None) -> None:
    own = {"a": torch.zeros(2), "n": torch.tensor([0])}
    if problem is None:
        checkpoint.check_weights(Path("here"), own, saved)
        return
    with pytest.raises(OneiroError, match=problem):
        checkpoint.check_weights(Path("here"), own, saved)


def test_parts_of_a_file_go_by_their_names() -> None:
    one, two = torch.ones(1), torch.ones(2)
    tensors = {"optimiser/w/step": one, "value/weight": two, "values/x": one}
    assert checkpoint.part_of(tensors, "optimiser") == {"w/step": one}
    assert checkpoint.part_of(tensors, "value") == {"weight": two} and checkpoint.part_of(tensors, "backbone") == {}


def stepped(folder: Path, *steps: int) -> None:
    for step in steps:
        (folder / f"step-{step:06d}" / "model").mkdir(parents=True)
        (folder / f"step-{step:06d}" / "model" / "config.json").write_text(str(step))


def test_the_newest_steps_stay_by_number_and_other_names_are_no_steps(tmp_path: Path) -> None:
    stepped(tmp_path, 2, 999_999, 1_000_000, 7)
    (tmp_path / "step-old").mkdir()
    (tmp_path / ".step-000009.1.part").mkdir()
    assert list(checkpoint.checkpoints(tmp_path)) == [2, 7, 999_999, 1_000_000]
    (tmp_path / "step-000001").write_text("a file, which is left alone")
    checkpoint.drop_older(tmp_path, 2)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"step-999999", "step-1000000", "step-old", ".step-000009.1.part", "step-000001"}
    newest = checkpoint.latest(tmp_path)
    assert newest is not None and checkpoint.step_of(newest) == 1_000_000
    assert checkpoint.latest(tmp_path / "nowhere") is None


def test_model_leads_to_the_newest_weights_or_to_the_best(tmp_path: Path) -> None:
    stepped(tmp_path, 1, 2, 3)
    link = tmp_path / "model"
    checkpoint.point_to(tmp_path / "step-000002")
    assert link.is_symlink() and (link / "config.json").read_text() == "2"
    (tmp_path / ".model-link").symlink_to("nowhere")  # a process was killed between two steps of it
    checkpoint.point_to(tmp_path / "step-000003")
    assert (link / "config.json").read_text() == "3" and not (tmp_path / ".model-link").is_symlink()
    checkpoint.point_to(tmp_path / "step-000009")  # without weights it stays
    assert (link / "config.json").read_text() == "3"
    link.unlink()
    link.mkdir()
    (link / "config.json").write_text("a copy")
    best = tmp_path / BEST / "model"
    best.mkdir(parents=True)
    (best / "config.json").write_text("best")
    checkpoint.point_to(tmp_path / "step-000003")
    assert link.is_symlink() and (link / "config.json").read_text() == "best"
    assert checkpoint.last(tmp_path).name == "step-000003" and list(checkpoint.checkpoints(tmp_path)) == [3]


def written(folder: Path, step: int, **state: Any) -> Path:
    def fill(part: Path) -> None:
        files.write_json(part / "state.json", {"step": step, **state})
        (part / "model").mkdir()
        (part / "model" / "x").write_text(str(step))

    return checkpoint.write(folder, step, fill, keep=3)


def test_checkpoints_are_known_by_their_numbers(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None and checkpoint.intact(tmp_path) is None
    for step in (2, 10, 9, 1000000):
        written(tmp_path, step)
    (tmp_path / "step-x").mkdir()
    (tmp_path / "step-000004.part").mkdir()
    assert list(checkpoint.checkpoints(tmp_path)) == [9, 10, 1000000]  # three are kept
    assert checkpoint.latest(tmp_path) == tmp_path / "step-1000000"
    assert checkpoint.step_of(tmp_path / "step-000010") == 10
    assert (tmp_path / "model" / "x").read_text() == "1000000" and (tmp_path / "model").is_symlink()
    checkpoint.drop_older(tmp_path)
    assert list(checkpoint.checkpoints(tmp_path)) == [10, 1000000]
    assert checkpoint.last(tmp_path).name == "step-1000000" and list(checkpoint.checkpoints(tmp_path)) == [1000000]


def test_the_link_leads_to_the_best_weights_and_replaces_a_copied_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "x").write_text("copied")
    newest = written(tmp_path, 1)
    assert (tmp_path / "model" / "x").read_text() == "1"
    (tmp_path / "best" / "model").mkdir(parents=True)
    (tmp_path / "best" / "model" / "x").write_text("best")
    (tmp_path / ".model-link").write_text("left behind")
    checkpoint.point_to(newest)
    assert (tmp_path / "model" / "x").read_text() == "best" and not (tmp_path / ".model-link").exists()
    (tmp_path / "alone" / "step-000001").mkdir(parents=True)
    checkpoint.point_to(tmp_path / "alone" / "step-000001")
    assert not (tmp_path / "alone" / "model").exists()


@pytest.mark.parametrize(
    "state",
    [[], {}, {"step": 2}, {"step": True}, {"step": -1}, {"step": "1"}, {"step": 1, "updates": []},
     {"step": 1, "updates": {"policy": -1}}, {"step": 1, "applied": {"policy": 0.5}},
     {"step": 1, "updates": {"policy": True}}],
)  # fmt: skip
def test_a_state_that_is_not_of_its_step_is_damage(state: Any, tmp_path: Path) -> None:
    folder = written(tmp_path, 1, updates={"policy": 0}, applied={"policy": 3})
    assert checkpoint.wrong_state(folder, 1) is None and checkpoint.wrong_state(folder, 2) is not None
    (folder / "state.json").write_text(json.dumps(state))
    assert checkpoint.wrong_state(folder, 1) is not None
    (folder / "state.json").unlink()
    assert "does not exist" in str(checkpoint.wrong_state(folder, 1))


def test_damaged_checkpoints_go_with_a_word_and_the_link_follows(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        written(tmp_path, step)
    said: list[str] = []
    (tmp_path / "step-000003" / "model" / "x").write_text("other")
    (tmp_path / "step-000002" / "manifest.json").unlink()
    found = checkpoint.intact(tmp_path, said.append)
    assert found is not None and found[0].name == "step-000001" and found[1] == {"step": 1}
    assert len(said) == 2 and "step-000003 is damaged (model/x is not what was written): removed" in said[0]
    assert "going on from step-000001" in said[1] and "no manifest.json" in said[1]
    assert (tmp_path / "model" / "x").read_text() == "1" and list(checkpoint.checkpoints(tmp_path)) == [1]
    (tmp_path / "step-000001" / "manifest.json").unlink()
    with pytest.raises(
        OneiroError, match=r"step-000001 is damaged \(no manifest.json: written by an older version\?\)"
    ):
        checkpoint.intact(tmp_path, said.append)


def test_an_optimiser_state_is_whole_and_of_its_parameters(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimiser = Optimiser([("w", parameter)], OptimiserSettings())
    whole = {"w/exp_avg": torch.zeros(2), "w/exp_avg_sq": torch.zeros(2), "w/step": torch.tensor(1.0)}

    def check(tensors: dict[str, torch.Tensor], applied: int = 1) -> None:
        checkpoint.check_optimiser(tmp_path, optimiser, tensors, applied)

    check(whole)
    check(whole | {"w/master": torch.zeros(2)})
    check({}, 0)
    check({"w/master": torch.zeros(2)}, 0)
    check({"w/state1": torch.zeros(7, dtype=torch.uint8), "w/step": torch.tensor(3)})
    for wrong, said in (
        ({}, "state is empty"),
        ({"w/master": torch.zeros(2)}, "state is empty"),
        ({"v/step": torch.zeros(1)}, "knows no 'v'"),
        (whole | {"w/exp_avg": torch.zeros(3)}, "'w/exp_avg' of the optimiser has another shape"),
        (whole | {"w/master": torch.zeros(1)}, "another shape"),
        (whole | {"w/exp_avg_sq": torch.tensor([0.0, torch.nan])}, "not finite"),
        (whole | {"w/exp_avg": torch.zeros(2, dtype=torch.long)}, "holds torch.int64"),
        (whole | {"w/step": torch.tensor(torch.inf)}, "not finite"),
        ({"w/step": torch.tensor(1.0)}, "of 'w' is incomplete"),
        ({"w/step": torch.tensor(1.0), "w/master": torch.zeros(2)}, "incomplete"),
        ({"w/exp_avg": torch.zeros(2), "w/step": torch.tensor(1.0)}, "incomplete"),
        ({"w/exp_avg": torch.zeros(2), "w/exp_avg_sq": torch.zeros(2)}, "incomplete"),
    ):
        with pytest.raises(OneiroError, match=said):
            check(wrong)
    own = {"a": torch.zeros(2), "n": torch.zeros(1, dtype=torch.long)}
    checkpoint.check_weights(tmp_path, own, {"a": torch.ones(2), "n": torch.ones(1, dtype=torch.long)})
    for saved in ({"a": torch.ones(2)}, own | {"b": torch.ones(1)}, own | {"a": torch.ones(3)}):
        with pytest.raises(OneiroError, match="of another model"):
            checkpoint.check_weights(tmp_path, own, saved)
    for saved in (
        own | {"a": torch.ones(2, dtype=torch.long)},
        own | {"n": torch.ones(1)},
        own | {"a": torch.tensor([1.0, torch.inf])},
    ):
        with pytest.raises(OneiroError, match="does not fit this model"):
            checkpoint.check_weights(tmp_path, own, saved)
