"""Architectures x algorithms x layouts against a plain second implementation.

The second implementation is slow and obvious: transformers' own forward on one row at a time, the whole softmax, and a
loop over tokens. Both compute the gradient of two updates on the same episodes: in the first the policy is its own
reference, in the second it has moved away from the reference. The two updates are two steps; with a critic, whose
values a step computes anew, they are two epochs of one step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GPTNeoXConfig, LlamaConfig, Qwen2Config, Qwen3Config

from oneiro.episode import Episode, Row, SamplingParams, Segment, given
from oneiro.learning import learner as learner_module
from oneiro.learning.algorithms import Algorithm, DrGrpo, Grpo, Ppo, Reinforce, Rloo
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.loop import Callbacks, RlSettings, reinforce
from oneiro.learning.losses import LossSettings
from oneiro.learning.optimiser import Optimiser, OptimiserSettings
from oneiro.learning.settings import FilterSettings
from oneiro.models.language import LanguageModel, LoraSettings, assemble, with_lora

VOCABULARY = 64
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8, tie_word_embeddings=False),
    "gpt-neox": GPTNeoXConfig(**SIZES),
    "qwen2": Qwen2Config(**SIZES, num_key_value_heads=2, tie_word_embeddings=True),
}
ARCHITECTURES = ("llama", "qwen3", "gpt-neox", "llama with lora")
WITH_BIASES = "qwen2"
LAYOUTS = {
    "rows alone": {"share": False},
    "rows after their prefix": {"share": True, "packed": False},
    "packed groups": {"share": True, "packed": True},
}
FAR_CLIP = 1e9
NO_DECAY = OptimiserSettings(lr=2e-2, weight_decay=0.0, clip=FAR_CLIP)


@dataclass(frozen=True)
class Case:
    """Settings of the update, and the temperature of the samples."""

    algorithm: Algorithm
    loss: LossSettings = field(default_factory=LossSettings)
    temperature: float = 1.0
    kl_in_reward: float = 0.0
    environment_ce: float = 0.0
    shared_backbone: bool = False


def loss(**settings: Any) -> LossSettings:
    return LossSettings(**settings)


CASES = {
    "grpo": Case(Grpo(), temperature=0.7),
    "grpo by rows": Case(Grpo(), loss(aggregate="sequence-mean", dual_clip=None)),
    "grpo with k3, entropy and environment tokens": Case(
        Grpo(), loss(kl=0.3, entropy=0.05, clip_low=0.1, clip_high=0.3), environment_ce=0.4
    ),
    "rloo with k1": Case(Rloo(), loss(kl=0.2, kl_kind="k1", dual_clip=1.5)),
    "reinforce++ with KL in the reward": Case(Reinforce(gamma=0.9), loss(kl=0.2, kl_kind="k2"), kl_in_reward=0.3),
    "rloo with KL in the reward": Case(Rloo(), kl_in_reward=0.5),
    "ppo on a shared body": Case(Ppo(lam=0.9, gamma=0.95), loss(value=0.7, value_clip=0.01), shared_backbone=True),
    "ppo with a critic": Case(Ppo(lam=0.8, whiten=False)),
}


def language(architecture: str) -> LanguageModel:
    torch.manual_seed(0)
    made = assemble("test", AutoModelForCausalLM.from_config(copy.deepcopy(CONFIGS[architecture.split()[0]])), None)
    if "lora" in architecture:
        made = with_lora(made, LoraSettings(rank=2, alpha=4))
    with torch.no_grad():
        for _, parameter in made.trainable():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return made


def episodes(model: Any, temperature: float) -> list[Episode]:
    """Two groups of three members and two turns: in one row with the environment's answer between them, or in two."""
    rng = np.random.default_rng(0)

    def reply(before: list[int], length: int, turn: int) -> Segment:
        tokens = rng.integers(2, VOCABULARY, length)
        scores = log_softmax(model, [*before, *tokens.tolist()], temperature).detach()
        own = [float(scores[len(before) + i - 1, token]) for i, token in enumerate(tokens)]
        # Old log-probabilities that leave ratios inside and outside of every clip.
        noise = rng.normal(0, 0.3, length) - (2.0 if length == 5 else 0.0)
        old = np.array(own, np.float32) + noise.astype(np.float32)
        params = SamplingParams(temperature)
        return Segment(tokens, True, "assistant", turn=turn, logprobs=old, params=params)

    found = []
    for group in range(2):
        prompt = rng.integers(2, VOCABULARY, 7 + group).tolist()
        for member in range(3):
            first = reply(prompt, 3 + member, 1)
            answer = rng.integers(2, VOCABULARY, 2).tolist()
            if group == 0:
                second = reply([*prompt, *first.tokens.tolist(), *answer], 5, 2)
                rows = [Row([given(prompt, turn=1), first, given(answer, turn=2), second])]
            else:
                second = reply([*prompt, *answer], 4 - member, 2)
                rows = [Row([given(prompt, turn=1), first]), Row([given([*prompt, *answer], turn=2), second])]
            found.append(Episode(rows, rewards=rng.normal(0, 1, 2).tolist(), group=group, member=member))
    return found


# The second implementation --------------------------------------------------------------------------------------------


def log_softmax(model: Any, tokens: list[int], temperature: float = 1.0) -> Tensor:
    return (model(torch.tensor([tokens])).logits[0].float() / temperature).log_softmax(-1)


@dataclass
class Token:
    """A sampled token: its row, its place there, and what the algorithm made of it."""

    row: Row
    at: int
    old: float
    reward: float = 0.0
    advantage: float = 0.0
    value: float = 0.0
    target: float = 0.0


def sampled_tokens(episode: Episode) -> list[Token]:
    """In order, with each turn's reward on its last token."""
    found = []
    for row in episode.rows:
        at = 0
        for segment in row.segments:
            if segment.sampled:
                found += [Token(row, at + i, float(segment.logprobs[i])) for i in range(len(segment))]
                found[-1].reward = episode.rewards[segment.turn - 1]
            at += len(segment)
    return found


def plain_loss(
    model: Any, start: Any, played: list[Episode], case: Case, head: nn.Module | None = None
) -> tuple[Tensor, Tensor]:
    """Loss of the policy and of its values; `start` is the model that played, the reference and the old values."""
    settings, temperature = case.loss, case.temperature
    by_episode = [sampled_tokens(episode) for episode in played]
    rows = {id(row): row for episode in played for row in episode.rows}
    ids = {key: row.tokens.tolist() for key, row in rows.items()}
    now = {key: log_softmax(model, tokens, temperature) for key, tokens in ids.items()}
    cold = {key: log_softmax(model, tokens) for key, tokens in ids.items()} if case.environment_ce else {}
    states = {key: hidden(model, tokens) for key, tokens in ids.items()} if head is not None else {}
    with torch.no_grad():
        first = {key: log_softmax(start, tokens, temperature) for key, tokens in ids.items()}

    def logprob(scores: dict[int, Tensor], token: Token) -> Tensor:
        return scores[id(token.row)][token.at - 1, token.row.tokens[token.at]]

    if case.kl_in_reward:
        for token in (token for tokens in by_episode for token in tokens):
            token.reward -= case.kl_in_reward * (token.old - float(logprob(first, token)))
    credit(played, by_episode, case.algorithm)

    tokens = [token for own in by_episode for token in own]
    of_row = {key: sum(id(token.row) == key for token in tokens) for key in rows}
    policy = values = torch.zeros(())
    for token in tokens:
        share = 1 / len(tokens)
        if settings.aggregate == "sequence-mean":
            share = 1 / (len(rows) * of_row[id(token.row)])
        scores = now[id(token.row)][token.at - 1]
        logp = logprob(now, token)
        ratio = (logp - token.old).exp()
        clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
        surrogate = torch.max(-token.advantage * ratio, -token.advantage * clipped)
        if settings.dual_clip is not None and token.advantage < 0:
            surrogate = torch.min(surrogate, torch.tensor(-token.advantage * settings.dual_clip))
        gap = logprob(first, token) - logp
        kl = {"k1": -gap, "k2": gap**2 / 2, "k3": gap.exp() - gap - 1}[settings.kl_kind]
        entropy = -(scores.exp() * scores).sum()
        policy = policy + share * (surrogate + settings.kl * kl - settings.entropy * entropy)
        if head is not None:
            value = head(states[id(token.row)][token.at - 1][None])[0]
            near = token.value + (value - token.value).clamp(-settings.value_clip, settings.value_clip)
            worse = torch.max((value - token.target) ** 2, (near - token.target) ** 2)
            values = values + share * settings.value * worse / 2
    if case.environment_ce:
        answers = [(key, at) for key, row in rows.items() for at in answered(row)]
        for key, at in answers:
            policy = policy - case.environment_ce * cold[key][at - 1, ids[key][at]] / len(answers)
    return policy, values


def answered(row: Row) -> list[int]:
    """Places of given tokens that follow a sampled one."""
    sampled = row.sampled.tolist()
    return [at for at in range(len(row)) if not sampled[at] and any(sampled[:at])]


def hidden(model: Any, tokens: list[int]) -> Tensor:
    return model(torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1][0]


def credit(played: list[Episode], by_episode: list[list[Token]], algorithm: Algorithm) -> None:
    """Advantages, and a critic's targets where there is one, into the tokens. A critic begins with values of 0."""
    scores = [sum(token.reward for token in tokens) for tokens in by_episode]
    for place, tokens in enumerate(by_episode):
        group = [scores[i] for i, other in enumerate(played) if other.group == played[place].group]
        others = [scores[i] for i, e in enumerate(played) if e.group == played[place].group and i != place]
        mean = sum(group) / len(group)
        deviation = (sum((score - mean) ** 2 for score in group) / (len(group) - 1)) ** 0.5
        for i, token in enumerate(tokens):
            if isinstance(algorithm, Grpo):
                token.advantage = (scores[place] - mean) / (deviation + algorithm.epsilon)
            elif isinstance(algorithm, DrGrpo):
                token.advantage = scores[place] - mean
            elif isinstance(algorithm, Rloo):
                token.advantage = scores[place] - sum(others) / len(others)
            elif isinstance(algorithm, Reinforce):
                token.advantage = sum(t.reward * algorithm.gamma**k for k, t in enumerate(tokens[i:]))
            elif isinstance(algorithm, Ppo):
                # With values of 0 a temporal difference is the reward alone.
                decay = algorithm.gamma * algorithm.lam
                token.advantage = token.target = sum(t.reward * decay**k for k, t in enumerate(tokens[i:]))
    if isinstance(algorithm, Reinforce) or (isinstance(algorithm, Ppo) and algorithm.whiten):
        every = [token for tokens in by_episode for token in tokens]
        mean = sum(token.advantage for token in every) / len(every)
        deviation = (sum((token.advantage - mean) ** 2 for token in every) / len(every)) ** 0.5
        for token in every:
            token.advantage = (token.advantage - mean) / (deviation + 1e-8)


# The comparison -------------------------------------------------------------------------------------------------------


def same(found: dict[str, Tensor], expected: dict[str, Tensor], up_to_a_factor: bool = False) -> None:
    """Gradients by name, as one vector: each difference against the largest entry."""
    assert found.keys() == expected.keys()
    a, b = (torch.cat([gradients[name].flatten() for name in expected]) for gradients in (found, expected))
    assert float(b.abs().max()) > 1e-4
    if up_to_a_factor:
        a, b = a / a.norm(), b / b.norm()
    torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-5 * float(b.abs().max()))


def gradients_of(optimiser: Optimiser, model: nn.Module) -> dict[str, Tensor]:
    """The gradients of transformers' parameters: those of the fused parameters that they are views of."""
    found = {}
    for name, parameter in model.named_parameters():
        for own in optimiser.parameters:
            if own.untyped_storage().data_ptr() == parameter.untyped_storage().data_ptr() and own.grad is not None:
                start = parameter.storage_offset() - own.storage_offset()
                found[name] = own.grad.flatten()[start : start + parameter.numel()].view(parameter.shape).clone()
    return found


def plain_gradients(value: Tensor, model: nn.Module) -> dict[str, Tensor]:
    learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(value, list(learned.values()), allow_unused=True)
    return {name: g for name, g in zip(learned, found, strict=True) if g is not None}


@pytest.fixture
def lay_out(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Forces a layout upon the learner."""
    plain = learner_module.batches

    def force(layout: str) -> None:
        monkeypatch.setattr(learner_module, "batches", lambda *given, **more: plain(*given, **(more | LAYOUTS[layout])))

    return force


@pytest.fixture
def at_updates(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Optimiser], None]], None]:
    """Looks at an optimiser before each of its steps."""
    step = Optimiser.step

    def watch(look: Callable[[Optimiser], None]) -> None:
        def looked(self: Optimiser, lr: float) -> float:
            look(self)
            return step(self, lr)

        monkeypatch.setattr(Optimiser, "step", looked)

    return watch


def go(made: LanguageModel, played: list[Episode], case: Case, folder: Path) -> None:
    """Two updates by the loop."""
    settings = RlSettings(
        steps=1 if case.algorithm.critic else 2,
        epochs=2 if case.algorithm.critic else 1,
        algorithm=case.algorithm,
        learner=LearnerSettings(optimiser=NO_DECAY, loss=case.loss),
        critic=NO_DECAY,
        filter=FilterSettings(name="none"),
        kl_in_reward=case.kl_in_reward,
        environment_ce=case.environment_ce,
        shared_backbone=case.shared_backbone,
    )
    reinforce(made, settings, folder, 0, Callbacks(lambda step: played, lambda step, values: None))


PAIRS = [
    pytest.param(
        architecture,
        case,
        tuple(LAYOUTS)[(i + j) % len(LAYOUTS)],
        marks=[] if j % len(ARCHITECTURES) == i else [pytest.mark.thorough],
    )
    for i, architecture in enumerate(ARCHITECTURES)
    for j, case in enumerate(CASES)
]
"""Every architecture with every algorithm, and with every layout; with every change, every algorithm once and every
architecture twice.
"""


@pytest.mark.parametrize(("architecture", "name", "layout"), PAIRS)
def test_an_update_has_the_plain_gradient(
    architecture: str,
    name: str,
    layout: str,
    tmp_path: Path,
    lay_out: Callable[[str], None],
    at_updates: Callable[[Callable[[Optimiser], None]], None],
) -> None:
    case = CASES[name]
    made = language(architecture)
    start = copy.deepcopy(made.model)
    played = episodes(made.model, case.temperature)
    lay_out(layout)
    seen = {"policy": 0, "critic": 0}

    def look(optimiser: Optimiser) -> None:
        heads = [place for place, name in enumerate(optimiser.names) if name.startswith("value.")]
        head = None
        if heads:
            weight, bias = (optimiser.parameters[place] for place in heads)

            def head(states: Tensor) -> Tensor:
                return states @ weight[0] + bias

        if heads and not case.shared_backbone:
            # The critic's body is a copy: its first update is the one where transformers' model still equals it.
            if not seen["critic"]:
                _, values = plain_loss(start, start, played, case, head)
                expected = torch.autograd.grad(values, [weight, bias])
                same({"w": weight.grad, "b": bias.grad}, dict(zip("wb", expected, strict=True)))
            seen["critic"] += 1
            return
        policy, values = plain_loss(made.model, start, played, case, head)
        expected = plain_gradients(policy + values, made.model)
        same(gradients_of(optimiser, made.model), expected)
        seen["policy"] += 1

    at_updates(look)
    go(made, played, case, tmp_path)
    assert seen["policy"] == 2 and (seen["critic"] == 2) == (name == "ppo with a critic")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dr_grpo_weighs_every_token_by_one_constant(
    layout: str,
    tmp_path: Path,
    lay_out: Callable[[str], None],
    at_updates: Callable[[Callable[[Optimiser], None]], None],
) -> None:
    """Whatever the constant, no row is favoured; test_objectives has its value."""
    case = Case(DrGrpo(), loss(max_tokens=16))
    made = language("llama")
    start, played = copy.deepcopy(made.model), episodes(made.model, 1.0)
    lay_out(layout)

    def look(optimiser: Optimiser) -> None:
        policy, _ = plain_loss(made.model, start, played, case)
        same(gradients_of(optimiser, made.model), plain_gradients(policy, made.model), up_to_a_factor=True)

    at_updates(look)
    go(made, played, case, tmp_path)


@pytest.mark.parametrize(
    ("architecture", "layout"),
    [
        pytest.param(architecture, layout, marks=[] if j == i % len(LAYOUTS) else [pytest.mark.thorough])
        for i, architecture in enumerate([*ARCHITECTURES, WITH_BIASES])
        for j, layout in enumerate(LAYOUTS)
    ],
)
def test_supervised_learning_has_the_plain_gradient(
    architecture: str,
    layout: str,
    lay_out: Callable[[str], None],
    at_updates: Callable[[Callable[[Optimiser], None]], None],
) -> None:
    made = language(architecture)
    rng = np.random.default_rng(1)
    prompt, lengths = rng.integers(2, VOCABULARY, 6), (4, 9, 1)
    targets = [rng.integers(2, VOCABULARY, length) for length in lengths]
    weights = [1.0, 0.25, 2.0]
    rows = [Row([given(prompt), given(t, ce=w)]) for t, w in zip(targets, weights, strict=True)]
    lay_out(layout)

    def look(optimiser: Optimiser) -> None:
        total = torch.zeros(())
        for target, weight in zip(targets, weights, strict=True):
            scores = log_softmax(made.model, [*prompt, *target])
            for i, token in enumerate(target):
                total = total - weight * scores[len(prompt) + i - 1, token]
        divisor = sum(w * length for w, length in zip(weights, lengths, strict=True))
        same(gradients_of(optimiser, made.model), plain_gradients(total / divisor, made.model))

    at_updates(look)
    learner = Learner(made.backbone, LearnerSettings(optimiser=NO_DECAY), 2)
    for _ in range(2):
        learner.update([Example.of(row) for row in rows])
