"""Where weights are bfloat16, what adds up, is drawn or is told stays float32; on a CPU, as on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from oneiro.episode import Row, SamplingParams, given
from oneiro.learning import checkpoint, loop
from oneiro.learning.batch import Example
from oneiro.learning.learner import PATIENCE, Learner, LearnerSettings
from oneiro.learning.rl_settings import RlSettings
from oneiro.learning.settings import OptimiserSettings, ReferenceSettings
from oneiro.learning.update import Reference
from oneiro.models.admission import backbone_of, excerpt
from oneiro.models.backbone import Backbone
from oneiro.models.heads import ValueHead
from oneiro.sampling.decode_batch import draw
from tests.conftest import make_tiny


def half() -> Backbone:
    return backbone_of(make_tiny().model.to(torch.bfloat16))


def test_a_reference_moves_by_less_than_bfloat16_can_hold() -> None:
    policy = half()
    reference = Reference(policy, ReferenceSettings(sync_every=1, mix=1e-3))
    name, weight = next((n, p) for n, p in policy.named_parameters() if n.endswith("norm.weight"))
    before = reference.weights[name].clone()
    assert before.dtype == torch.float32 and reference.model is not None
    with torch.no_grad():
        weight.add_(1.0)
    reference.follow(1)
    expected = before + 1e-3 * (weight.detach().float() - before)  # about 0.001 more: bfloat16 has steps of 0.008 there
    torch.testing.assert_close(reference.weights[name], expected, atol=1e-7, rtol=0)
    assert not torch.equal(expected, before)
    own = dict(reference.model.named_parameters())[name]
    assert own.dtype == torch.bfloat16 and torch.equal(own, reference.weights[name].bfloat16())
    kept = {key: value.clone() for key, value in reference.state().items()}
    other = Reference(half(), ReferenceSettings(sync_every=1, mix=1e-3))
    other.restore(kept)
    assert all(torch.equal(other.weights[key], kept[key]) for key in kept)


def test_draws_from_rounded_logits_are_told_in_full() -> None:
    logits = (3 * torch.randn(5, 40, generator=torch.Generator().manual_seed(1))).bfloat16()
    numbers = torch.linspace(0.1, 0.9, 5)
    tokens, logprobs = draw(logits, numbers, SamplingParams(0.7))
    same, alike = draw(logits.float(), numbers, SamplingParams(0.7))
    assert tokens.tolist() == same.tolist() and logprobs.dtype == torch.float32
    torch.testing.assert_close(logprobs, alike, atol=1e-7, rtol=0)


def test_values_and_log_probabilities_are_float32() -> None:
    backbone = half()
    row = Row([given([3, 4, 5]), given([6, 7, 8, 9], ce=1.0)])
    ((found,), _) = Learner(backbone, LearnerSettings(), 1).logprobs([Example.of(row)])
    assert found.dtype == np.float32 and np.unique(found[3:]).size == 4
    values = ValueHead(8)(torch.ones(3, 8, dtype=torch.bfloat16))
    assert values.dtype == torch.float32 and values.tolist() == [0.0] * 3
    assert {p.dtype for p in excerpt(make_tiny().model.to(torch.bfloat16)).parameters()} == {torch.float32}


def test_steps_smaller_than_the_rounding_add_up_from_phase_to_phase(tmp_path: Path) -> None:
    """Each phase has a learner of its own. With the optimiser of the phase before, thirty phases are thirty steps of
    one learner; with the weights alone, each phase starts again from what bfloat16 has kept, which is nothing.
    """
    row = Row([given([3, 4, 5]), given([6, 7, 8, 9], ce=1.0)])
    settings = LearnerSettings(optimiser=OptimiserSettings(lr=1e-5, weight_decay=0.0))
    example, phases = Example.of(row), 30

    def learner(backbone: Backbone) -> Learner:
        return Learner(backbone, settings, 1)

    start = half().state_dict()
    together = learner(half())
    for _ in range(phases):
        together.update([example])
    carried = half()
    for phase in range(phases):
        own = learner(carried)
        checkpoint.restore(tmp_path, None, {"policy": own})
        own.update([example])
        checkpoint.save(tmp_path, phase + 1, None, {"policy": own}, keep=1)
    forgetful = half()
    for _ in range(phases):
        learner(forgetful).update([example])
    changed = {
        name: sum(int((weight != start[key]).sum()) for key, weight in body.state_dict().items())
        for name, body in (("together", together.backbone), ("carried", carried), ("forgetful", forgetful))
    }
    assert all(torch.equal(carried.state_dict()[key], weight) for key, weight in together.backbone.state_dict().items())
    assert changed["carried"] > 10 * changed["forgetful"]


def test_an_update_says_which_part_of_the_rounded_weights_it_changed() -> None:
    row = Row([given([3, 4, 5]), given([6, 7, 8, 9], ce=1.0)])
    backbone = half()
    learner = Learner(backbone, LearnerSettings(optimiser=OptimiserSettings(lr=1e-3, weight_decay=0.0)), 1)
    before = [p.detach().clone() for p in learner.optimiser.parameters]
    changed = learner.update([Example.of(row)])["weights_changed"]
    differ = sum(int((p != b).sum()) for p, b in zip(learner.optimiser.parameters, before, strict=True))
    assert 0 < changed < 1 and changed == np.float32(differ / sum(b.numel() for b in before))
    whole = Learner(make_tiny().backbone, LearnerSettings(), 1)
    assert "weights_changed" not in whole.update([Example.of(row)])  # float32 rounds nothing away


def test_updates_that_vanish_are_worth_a_warning() -> None:
    row = Row([given([3, 4, 5]), given([6, 7, 8, 9], ce=1.0)])
    learner = Learner(half(), LearnerSettings(optimiser=OptimiserSettings(lr=1e-9, weight_decay=0.0)), 1)
    for _ in range(PATIENCE - 1):
        learner.update([Example.of(row)])
    with pytest.warns(UserWarning, match="raise the learning rate"):
        learner.update([Example.of(row)])


def test_a_new_stage_goes_on_from_what_rounding_took_from_the_stage_before(tmp_path: Path) -> None:
    row = Row([given([3, 4, 5]), given([6, 7, 8, 9], ce=1.0)])
    language = make_tiny()
    language.model.to(torch.bfloat16)
    language = replace(language, backbone=backbone_of(language.model))
    settings = LearnerSettings(optimiser=OptimiserSettings(lr=1e-4, weight_decay=0.0))
    first = Learner(language.backbone, settings, 1)
    first.update([Example.of(row)])
    checkpoint.save(tmp_path / "sft", 1, language, {"policy": first})
    rounded = [p.detach().float() for p in first.optimiser.parameters]
    assert any(not torch.equal(m, r) for m, r in zip(first.optimiser.masters, rounded, strict=True))

    language.trained_in = tmp_path / "sft"
    second = loop.make_learners(language, RlSettings(), settings, 1)["policy"]
    assert all(map(torch.equal, second.optimiser.masters, first.optimiser.masters))

    name, weight = next((n, p) for n, p in language.backbone.named_parameters() if p.dim() == 2)
    with torch.no_grad():
        weight.add_(1.0)  # not the weights of that stage any more
    third = loop.make_learners(language, RlSettings(), settings, 1)["policy"].optimiser
    assert torch.equal(third.masters[third.names.index(name)], weight.detach().float())
