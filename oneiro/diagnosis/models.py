"""Whether a model is computed here as transformers computes it: logits, samples, gradients, resume, adapters.

A folder or a hub name is checked with its own weights, a configuration or the name of an architecture as a small model
with random ones. Everything runs in float32 on the CPU, where a difference is a defect and not rounding.
"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneiro.episode import Row, given
from oneiro.learning import checkpoint, head
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models.admission import TOLERANCE, admit, backbone_of, probe, random_model, small_config
from oneiro.models.attention import Causal
from oneiro.models.backbone import base_of
from oneiro.models.foreign import ForeignBackbone
from oneiro.models.language import LanguageModel, LoraSettings, merge_adapters, quiet, with_lora
from oneiro.models.locate import locate
from oneiro.recipe import pretrained
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError, first_line, nearest
from oneiro.sampling.engine import Engine, SamplingSettings

ARCHITECTURES = (
    *("llama", "mistral", "qwen2", "qwen3", "smollm3", "granite", "gemma", "gemma2", "gemma3_text"),
    *("apertus", "arcee", "biogpt", "bitnet", "cohere", "cohere2", "ernie4_5", "exaone4", "glm", "glm4", "glm4_moe"),
    *("gpt2", "gpt_bigcode", "gpt_neox", "gpt_oss", "granitemoe", "helium", "hunyuan_v1_dense", "ministral", "mixtral"),
    *("nanochat", "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "opt", "persimmon", "phi", "phi3", "qwen2_moe"),
    *("qwen3_moe", "seed_oss", "stablelm", "starcoder2", "vaultgemma"),
    *("bamba", "bloom", "codegen", "deepseek_v2", "deepseek_v3", "diffllama", "falcon", "falcon_h1", "gptj", "jamba"),
    *("llama4_text", "lfm2", "mamba", "mpt", "qwen3_next", "recurrent_gemma", "rwkv", "xglm"),
)
"""What the table of docs/models.md tries."""
LAYERS = {"lfm2": ["conv", "full_attention"]}
"""Kinds of layers of real models, where a configuration's own default has only one kind."""
PROMPT, NEW = 12, 12


@dataclass
class ModelCheck:
    """What was found out about one model."""

    name: str
    forward: str = ""
    """`own`: Oneiro's fast path; `layers`: through the layers of transformers."""
    refused: str = ""
    """Why the model is refused; empty if it is not."""
    differences: dict[str, float] = field(default_factory=dict)
    """Of each check the largest difference, relative to the largest number compared."""

    @property
    def passed(self) -> bool:
        return not self.refused and all(value <= TOLERANCE for value in self.differences.values())


def check_model(source: str) -> ModelCheck:
    """Check a folder, a hub name, a config.json or the name of an architecture."""
    name, make = open_source(source)
    model = make(0)
    try:
        admit(model)
        forward = "layers" if isinstance(backbone_of(copy.deepcopy(model)), ForeignBackbone) else "own"
    except OneiroError as error:
        return ModelCheck(name, refused=first_line(error.__cause__ or error, 300))
    differences = {"logits": max(probe(model).values())}
    for check in (sampled_logprobs, gradients, resumed, merged_adapter):
        try:
            differences[check.__name__] = check(make)
        except OneiroError:
            differences[check.__name__] = math.inf
    return ModelCheck(name, forward, "", differences)


def table(checks: Sequence[ModelCheck]) -> Table:
    """One line a model."""
    columns = ["logits", "sampled_logprobs", "gradients", "resumed", "merged_adapter"]
    summary = Table("Models", ["architecture", "runs", *(name.replace("_", " ") for name in columns), "verdict"])
    for check in checks:
        runs = {"own": "fast path", "layers": "transformers layers", "": "no"}[check.forward]
        numbers = (f"{check.differences[name]:.0e}" if name in check.differences else "" for name in columns)
        verdict = f"refused: {check.refused}" if check.refused else "supported" if check.passed else "WRONG"
        summary.add(check.name, runs, *numbers, verdict)
    return summary


def open_source(source: str) -> tuple[str, Callable[[int], Any]]:
    """A name, and a function that makes the model; where weights are random, it takes their seed."""
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, logging

    quiet()
    logging.set_verbosity_error()  # small sizes make the library warn of what is not wrong
    path = Path(source).expanduser()
    if source in CONFIG_MAPPING:
        config = CONFIG_MAPPING[source]()
        if source in LAYERS:
            config.layer_types = LAYERS[source] * (config.num_hidden_layers // 2)
    elif path.is_file() or (path.is_dir() and not any(path.glob("*.safetensors"))):
        try:
            config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        except Exception as error:  # every loader raises its own kind; the person needs one line
            raise OneiroError(f"cannot read a model configuration from '{source}': {first_line(error)}") from error
    elif "/" not in source and source != pretrained.TEMPLATE and not path.exists():
        raise OneiroError(
            f"'{source}' is no folder, config.json, hub name or architecture{nearest(source, list(CONFIG_MAPPING))}"
        )
    else:
        place = locate(source)

        def load(_: int) -> Any:
            return AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, trust_remote_code=False).eval()

        return source, load
    text = config.get_text_config()
    if text is not config:
        raise OneiroError(f"'{source}' is more than a language model; check its text part: {text.model_type}")
    try:
        small = small_config(config)
        random_model(small)
    except Exception as error:
        raise OneiroError(f"cannot make a small model like '{source}': {first_line(error)}; give weights") from error
    return getattr(config, "model_type", source), lambda seed: random_model(small, seed)


def sampled_logprobs(make: Callable[[int], Any]) -> float:
    """Log-probabilities of sampled tokens, against a plain forward over prompt and sample."""
    judge, language = make(0), assemble(make(0))
    prompts = [tokens_for(judge, PROMPT, seed) for seed in (1, 2)]
    sampling = SamplingSettings(max_tokens=NEW, ignore_eos=True)
    worst = 0.0
    for prompt, samples in zip(prompts, Engine(language).generate(prompts, 2, sampling, seed=3), strict=True):
        for sample in samples:
            whole = torch.from_numpy(np.concatenate([prompt, sample.tokens]).astype(np.int64))
            with torch.no_grad():
                scores = judge(input_ids=whole[None], use_cache=False).logits[0].float().log_softmax(-1)
            expected = scores[PROMPT - 1 : -1].gather(1, whole[PROMPT:, None])[:, 0]
            worst = max(worst, difference(torch.from_numpy(sample.logprobs), expected))
    return worst


def gradients(make: Callable[[int], Any]) -> float:
    """Gradients of the mean cross-entropy of all weights, against autograd through transformers' own forward."""
    judge, language = make(0), assemble(make(0))
    tokens = torch.from_numpy(tokens_for(judge, PROMPT + NEW, 1).astype(np.int64))
    logits = judge(input_ids=tokens[None], use_cache=False).logits[0]
    torch.nn.functional.cross_entropy(logits[:-1].float(), tokens[1:]).backward()

    backbone = language.backbone
    hidden = backbone(tokens[None], torch.arange(len(tokens)), Causal())[0, :-1]
    count = len(tokens) - 1
    loss, _, _ = head.loss(
        hidden, backbone.output, tokens[1:], torch.ones(count), lambda logp, _, part: -logp.sum() / count
    )
    loss.backward()
    before = {name: tensor.detach().clone() for name, tensor in language.model.state_dict().items()}
    with torch.no_grad():  # fused weights know their gradient as a whole: the model's own names show it after a step
        for parameter in backbone.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad)
    after = language.model.state_dict()
    worst = 0.0
    largest = max(float(p.grad.abs().max()) for p in judge.parameters() if p.grad is not None)
    for name, parameter in judge.named_parameters():
        expected = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        worst = max(worst, float((before[name] - after[name] - expected).abs().max()) / largest)
    return worst


def resumed(make: Callable[[int], Any]) -> float:
    """An update after a checkpoint was written and read by another process's model, against going on without."""
    on, off = assemble(make(0)), assemble(make(7))
    examples = [Example.of(Row([given(tokens_for(on.model, 6, 1)), given(tokens_for(on.model, 8, 2), ce=1.0)]))]
    learners = [Learner(language.backbone, LearnerSettings(), 4) for language in (on, off)]
    learners[0].update(examples)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(Path(folder), 1, on, {"policy": learners[0]})
        checkpoint.restore(Path(folder), off, {"policy": learners[1]})
    for learner in learners:
        learner.update(examples)
    pairs = zip(on.model.state_dict().values(), off.model.state_dict().values(), strict=True)
    return max(difference(a, b) for a, b in pairs)


def merged_adapter(make: Callable[[int], Any]) -> float:
    """Logits of a model with a trained adapter, against those of the model it was merged into."""
    language = with_lora(assemble(make(0)), LoraSettings(rank=4))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, parameter in language.trainable():
            parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    tokens = torch.from_numpy(tokens_for(base_of(language.model), PROMPT, 1).astype(np.int64))[None]

    def logits(language: LanguageModel) -> Tensor:
        with torch.no_grad():
            return language.backbone.output.logits(language.backbone(tokens, torch.arange(PROMPT), Causal()))

    adapted = logits(language)
    return difference(logits(merge_adapters(language)), adapted)


def assemble(model: Any) -> LanguageModel:
    return LanguageModel(model.config.model_type, model, None, backbone_of(model))


def tokens_for(model: Any, count: int, seed: int) -> Any:
    vocabulary = model.get_input_embeddings().weight.shape[0]
    return np.random.default_rng(seed).integers(3, vocabulary, count, dtype=np.int32)


def difference(actual: Tensor, expected: Tensor) -> float:
    scale = max(1e-12, float(expected.abs().max()))
    return float((actual.float() - expected.float()).abs().max()) / scale
