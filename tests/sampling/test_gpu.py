"""The same promises on a GPU, in bfloat16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from oneiro.episode import Episode, Row, given
from oneiro.learning import head
from oneiro.learning.batch import batches
from oneiro.learning.example import Example
from oneiro.learning.filters import FilterSettings
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.loop import Callbacks, RlSettings, actor_of, reinforce
from oneiro.models.admission import admit, backbone_of
from oneiro.models.attention import PrefixGroups
from oneiro.models.heads import OutputHead
from oneiro.sampling.engine import Engine, SamplingSettings
from tests.conftest import make_tiny
from tests.learning.test_learner import gradients

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


LAYER_TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),  # biases
    "qwen3": ("qwen3", {}),  # norms of heads
    "mistral": ("mistral", {"sliding_window": 20}),
    "gemma2": ("gemma2", {"sliding_window": 20, "attn_logit_softcapping": 4.0, "layer_types": LAYER_TYPES}),
    "gemma3": ("gemma3_text", {"sliding_window": 20, "layer_types": LAYER_TYPES, "head_dim": 256}),
    "granite": ("granite", {"attention_multiplier": 0.2, "logits_scaling": 2.0}),
    "gpt-oss": (  # sinks, through the layers of transformers
        "gpt_oss",
        {"sliding_window": 20, "layer_types": LAYER_TYPES, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
}


def random_model(dtype: torch.dtype, family: str):  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    architecture, special = FAMILIES[family]
    sizes = {
        "vocab_size": 330,
        "hidden_size": 192,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "pad_token_id": 0,
        "eos_token_id": 2,
    }
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[architecture](**{**sizes, **special}))
    for name, parameter in model.named_parameters():
        if name.endswith(("bias", "sinks")):
            torch.nn.init.normal_(parameter, std=0.5)
    return model.to("cuda", dtype).eval()


def language(dtype: torch.dtype, family: str = "llama"):  # type: ignore[no-untyped-def]
    made = make_tiny()
    made.model = random_model(dtype, family)
    made.backbone = backbone_of(made.model)
    return made


def rows(engine: Engine, **sampling: float) -> list[Row]:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(5, 300, length) for length in (3, 40, 17, 3, 90, 64)]
    sampled = engine.generate(prompts, 8, SamplingSettings(max_tokens=70, **sampling), seed=1)
    return [Row([given(p), *s.segments()]) for p, group in zip(prompts, sampled, strict=True) for s in group]


def gaps(made, sampled: list[Row]) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Between the sampler's log-probabilities and the learner's, for every sampled token."""
    examples = [Example.of(row) for row in sampled]
    recomputed, _ = Learner(made.backbone, LearnerSettings(), 1).logprobs(examples)
    return np.concatenate(
        [np.abs(a - e.logprobs)[e.weights["policy"] != 0] for a, e in zip(recomputed, examples, strict=True)]
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("dtype", "mean", "largest"), [(torch.float32, 1e-3, 2e-2), (torch.bfloat16, 0.03, 0.5)])
def test_graph_decoding_agrees_with_the_learner(dtype: torch.dtype, mean: float, largest: float, family: str) -> None:
    """float32 differs by the tensor cores' rounding of inputs, bfloat16 by its own eight bits."""
    made = language(dtype, family)
    found = gaps(made, rows(Engine(made, max_batch_size=16)))
    assert len(found) > 500
    assert found.mean() < mean and found.max() < largest


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_on_a_gpu_is_admitted_in_float32(family: str) -> None:
    admit(random_model(torch.bfloat16, family))


@pytest.mark.parametrize("sampling", [{"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}])
def test_every_way_to_draw_agrees_with_the_learner(sampling: dict[str, float]) -> None:
    made = language(torch.float32)
    found = gaps(made, rows(Engine(made, max_batch_size=16), **sampling))
    assert found.mean() < 1e-3 and found.max() < 2e-2


def test_the_loss_head_agrees_with_its_plain_form() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(37, 24, device="cuda"), torch.randn(5003, 24, device="cuda")
    bias = torch.randn(5003, device="cuda")
    targets, temperature = torch.randint(0, 5003, (37,), device="cuda"), torch.rand(37, device="cuda") + 0.5

    def objective(logprobs: torch.Tensor, entropies: torch.Tensor, part: slice) -> torch.Tensor:
        return (logprobs * torch.linspace(-1, 1, 37, device=logprobs.device)[part] + 0.3 * entropies).sum()

    results = []
    for device in ("cpu", "cuda"):
        leaves = [x.detach().to(device).requires_grad_() for x in (hidden, weight, bias)]
        output = OutputHead(leaves[1], leaves[2], softcap=3.0)
        total, logprobs, entropies = head.loss(leaves[0], output, targets.to(device), temperature.to(device), objective)
        total.backward()
        results.append([x.detach().cpu() for x in (total, logprobs, entropies, *(leaf.grad for leaf in leaves))])
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=2e-3, atol=2e-3)


def test_the_number_of_slots_changes_nothing_in_float32() -> None:
    made = language(torch.float32)
    few, many = rows(Engine(made, max_batch_size=8)), rows(Engine(made, max_batch_size=128))
    same = [len(a) == len(b) and bool((a.tokens == b.tokens).all()) for a, b in zip(few, many, strict=True)]
    assert np.mean(same) > 0.9  # a tie broken by rounding may turn one row


def test_play_runs_beside_the_learner(tmp_path: Path) -> None:
    """Graphs are captured in one thread while another learns; a run that does both twice gives the same numbers."""

    def go(folder: Path, seed: int) -> list[dict[str, float]]:
        made, logged = language(torch.float32), []
        settings = RlSettings(steps=6, async_rollout=True, checkpoint_every=4, filter=FilterSettings(name="none"))
        actor = actor_of(made, settings)
        engine = Engine(actor)

        def play(step: int) -> list[Episode]:
            # Ever longer: the engine makes its rows and graphs anew in most steps.
            sampling = SamplingSettings(max_tokens=32 << (step // 2), ignore_eos=True)
            samples = engine.generate([np.arange(5, 9 + 8 * step)], 16, sampling, seed=seed + step)[0]
            given_row = given(np.arange(5, 9 + 8 * step))
            return [
                Episode([Row([given_row, *s.segments(turn=1)])], [float((s.tokens % 2 == 0).mean())]) for s in samples
            ]

        reinforce(made, settings, folder, 0, Callbacks(play, lambda step, values: logged.append(values)), actor)
        return logged

    first, second, other = go(tmp_path / "first", 0), go(tmp_path / "second", 0), go(tmp_path / "other", 100)
    rewards, again, elsewhere = ([values["reward"] for values in logged] for logged in (first, second, other))
    assert len(rewards) == 6 and first[0]["mismatch"] < 2e-2
    # The first two steps are played with the weights of the start; from then on updates differ in their last bits.
    assert rewards[:2] == again[:2] and rewards[:2] != elsewhere[:2]
    assert rewards == pytest.approx(again, abs=0.05)


@pytest.mark.parametrize("dim", [16, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_prefix_group_kernels_are_attention_with_a_mask(dim: int, dtype: torch.dtype) -> None:
    """Values and gradients, for prefixes and rows that end inside, at and past the edges of tiles."""
    groups = [(70, [30, 41, 65]), (0, [100, 50]), (64, [64, 64]), (130, [10] * 9), (1, [200]), (63, [65, 1, 1, 1])]
    length, heads, key_heads = 240, 6, 2
    row_id = torch.full((len(groups), length), -1, device="cuda")
    for line, (prefix, lengths) in zip(row_id, groups, strict=True):
        numbers = torch.repeat_interleave(torch.arange(1 + len(lengths)), torch.tensor([prefix, *lengths]))
        line[: len(numbers)] = numbers
    torch.manual_seed(0)
    fused = torch.randn(len(groups), length, heads + 2 * key_heads, dim, device="cuda", dtype=dtype)
    weight = torch.randn(len(groups), heads, length, dim, device="cuda") * (row_id >= 0)[:, None, :, None]
    results = []
    for kernels, of in ((True, dtype), (False, torch.float32)):
        plan = PrefixGroups(row_id, of)
        plan.kernels = plan.kernels if kernels else None
        leaf = fused.detach().to(of).requires_grad_()
        query, key, value = (x.transpose(1, 2) for x in leaf.split([heads, key_heads, key_heads], 2))
        out = plan(0, query, key, value)
        (out.float() * weight).sum().backward()
        assert leaf.grad is not None
        results.append((out.detach().float()[row_id[:, None].expand(-1, heads, -1) >= 0], leaf.grad.float()))
    for found, expected in zip(*results, strict=True):
        assert (found - expected).abs().max() <= 5e-2 * expected.abs().max()


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
@pytest.mark.parametrize("packed", [True, False])
def test_gradients_are_those_of_float32_on_a_processor(packed: bool, family: str) -> None:
    """Of every parameter, in direction and size."""
    made = language(torch.bfloat16, family)
    sampled = rows(Engine(made), temperature=1.0)
    examples = [Example.of(row) for row in sampled]
    for place, example in enumerate(examples):
        example.columns["advantages"] = np.full(len(example), (-1.0) ** place * (1 + place % 3), np.float32)
        example.prefix = example.prefix if packed else 0
    plain = language(torch.float32, family)
    plain.model = plain.model.cpu()
    plain.backbone = backbone_of(plain.model)
    with torch.no_grad():
        for mine, theirs in zip(plain.backbone.parameters(), made.backbone.parameters(), strict=True):
            mine.copy_(theirs)
    loss, found = gradients(made, list(batches(examples, 10_000, "cuda", packed=packed)))
    expected_loss, expected = gradients(plain, list(batches(examples, 10_000, "cpu", share=False)))
    assert loss == pytest.approx(expected_loss, rel=0.05, abs=0.02)
    for mine, theirs in zip(found, expected, strict=True):
        likeness = torch.nn.functional.cosine_similarity(mine.float().cpu().flatten(), theirs.flatten(), dim=0)
        assert likeness > 0.99 and float(mine.float().norm()) == pytest.approx(float(theirs.norm()), rel=0.05)
