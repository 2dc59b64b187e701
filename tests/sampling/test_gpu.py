"""The same promises on a GPU, in bfloat16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from oneiro.episode import Episode, Row, given
from oneiro.learning import head
from oneiro.learning.batch import Example, batches
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.loop import Callbacks, RlSettings, actor_of, reinforce
from oneiro.learning.settings import FilterSettings
from oneiro.models.admission import admit, backbone_of
from oneiro.models.attention import PrefixGroups, Rule
from oneiro.models.heads import OutputHead
from oneiro.sampling.decode_batch import gpu_kernels
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.sampling.prompt_store import ContinueStored, PromptStore
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


def rows_of_groups(engine: Engine, n: int, **sampling: object) -> list[Row]:
    """Several lengths, equal prompts, and some that share only a beginning, as later turns of a game do."""
    rng = np.random.default_rng(0)
    one, two, three = (rng.integers(5, 300, length) for length in (300, 170, 64))
    turns = [np.concatenate([one[:200], rng.integers(5, 300, length)]) for length in (1, 30, 90, 30)]
    prompts = [one, two, rng.integers(5, 300, 3), three, *turns, two]
    sampled = engine.generate(prompts, n, SamplingSettings(max_tokens=70, **sampling), seed=1)  # type: ignore[arg-type]
    return [Row([given(p), *s.segments()]) for p, group in zip(prompts, sampled, strict=True) for s in group]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("dtype", "mean", "largest"), [(torch.float32, 1e-3, 2e-2), (torch.bfloat16, 0.03, 0.5)])
def test_shared_prompts_agree_with_the_learner(dtype: torch.dtype, mean: float, largest: float, family: str) -> None:
    """More samples than slots, each as long as it comes: rows move, and prompts are stored anew."""
    made = language(dtype, family)
    engine = Engine(made, max_batch_size=40, share_from=64)
    found = np.concatenate([gaps(made, rows_of_groups(engine, n)) for n in (18, 1)])
    assert engine._batch is not None and engine._batch.store is not None and engine._batch.store.used
    assert len(found) > 2000
    assert found.mean() < mean and found.max() < largest


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7, "stop": ("e", "1")}, {"top_k": 5}])
def test_shared_prompts_are_sampled_as_in_the_plain_way(sampling: dict[str, object]) -> None:
    made = language(torch.float32)
    for n in (18, 1):
        shared, plain = (
            rows_of_groups(Engine(made, max_batch_size=64, share_from=least), n, **sampling) for least in (64, 0)
        )
        same = [len(a) == len(b) and bool((a.tokens == b.tokens).all()) for a, b in zip(shared, plain, strict=True)]
        assert np.mean(same) > 0.85  # a tie broken by rounding may turn one row


@pytest.mark.parametrize(("dim", "group"), [(16, 1), (64, 3), (128, 7), (64, 20)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_kernels_of_shared_prompts_are_their_plain_form(dim: int, group: int, dtype: torch.dtype) -> None:
    """Prompts that end inside, at and past the edges of chunks and blocks; a tile nobody uses; rows of no prompt."""
    close = 2e-2 if dtype is torch.float32 else 4e-2  # tensor cores round float32, too
    torch.manual_seed(0)
    heads, rows, capacity, lengths = 2, 45, 40, [300, 128, 1, 255]
    members = max(1, min(16, 128 // group))
    store = object.__new__(PromptStore)
    store.kv_cache = [tuple(torch.randn(4, heads, 320, dim, device="cuda", dtype=dtype) for _ in range(2))]  # type: ignore[list-item]
    store.length = torch.tensor(lengths, device="cuda")
    place = torch.arange(rows) % 5  # the fifth has none
    store.start = torch.tensor([*lengths, 0], device="cuda")[place.cuda()]
    tiles = [(p, part.tolist()) for p in range(4) for part in torch.nonzero(place == p)[:, 0].split(members)]
    store.tile_prompt = torch.tensor([p for p, _ in tiles] + [-1], dtype=torch.int32, device="cuda")
    seats = [part + [-1] * (members - len(part)) for _, part in tiles] + [[-1] * members]
    store.tile_rows = torch.tensor(seats, dtype=torch.int32, device="cuda")
    position = store.start + torch.randint(0, capacity, (rows,), device="cuda")
    cache = [torch.randn(rows, heads, capacity, dim, device="cuda", dtype=dtype) for _ in range(2)]
    query = torch.randn(rows, heads * group, 1, dim, device="cuda", dtype=dtype)
    new = [torch.randn(rows, heads, 1, dim, device="cuda", dtype=dtype) for _ in range(2)]
    sinks = torch.randn(heads * group, device="cuda")
    for rule in (Rule(), Rule(50, 2.0, sinks)):
        for chunk in (128, 320):
            store._tiles = len(store.tile_prompt), chunk
            results = []
            for kernels in (gpu_kernels(query.device, dim), None):
                own = cache[0].clone(), cache[1].clone()
                mixed = ContinueStored([own], position, store, kernels)(0, query, new[0], new[1], rule)
                results.append((mixed, *own))
            for kernel, plain in zip(*results, strict=True):
                torch.testing.assert_close(kernel.float(), plain.float(), rtol=close, atol=close)


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
