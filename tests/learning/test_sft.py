"""Supervised learning: order, held-out loss, overfitting."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from oneiro.episode import Row, given
from oneiro.learning import sft
from oneiro.learning.checkpoint import checkpoints
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.settings import SftSettings
from oneiro.models.language import LanguageModel
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny


def test_an_update_takes_groups_of_as_many_rows_as_a_batch_has_on_average() -> None:
    plain = sft.Schedule.of(SftSettings(batch=4, epochs=1.5), 10, None)
    # Ten rows in fours: 1.5 x 10 / 4 = 3.75, so four updates.
    assert (plain.steps, plain.at_once, list(plain.ends)) == (4, 4, list(range(1, 11)))
    grouped = sft.Schedule.of(SftSettings(batch=4, epochs=1.0), 12, [2, 4, 6])
    # Three groups of four rows on average: one group at once, three updates.
    assert (grouped.steps, grouped.at_once, list(grouped.ends)) == (3, 1, [2, 6, 12])
    assert sorted(sorted(grouped.rows(0, step)) for step in range(3)) == [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    small = sft.Schedule.of(SftSettings(batch=1, epochs=0.01), 100, [50, 50])
    assert (small.steps, small.at_once) == (1, 1)
    shuffles = [seeds.generator(7, "shuffle", epoch).permutation(5).tolist() for epoch in range(3)]
    chain = [row for shuffle in shuffles for row in shuffle]
    assert [sft.order(5, 7, step, 4) for step in range(3)] == [chain[:4], chain[4:8], chain[8:12]]


def test_held_out_loss_is_a_mean_over_weights_and_overfitting_is_five_percent(tiny: LanguageModel) -> None:
    rows = [Row([given([1, 2]), given([3, 4], ce=2.0)]), Row([given([1]), given([5], ce=0.5)])]
    found = sft.mean_loss(Learner(tiny.backbone, LearnerSettings(), 1), rows)
    scores = tiny.model(torch.tensor([[1, 2, 3, 4]])).logits[0].log_softmax(-1).detach()
    other = tiny.model(torch.tensor([[1, 5]])).logits[0].log_softmax(-1).detach()
    expected = -(2 * scores[1, 3] + 2 * scores[2, 4] + 0.5 * other[0, 5]) / 4.5
    assert found == pytest.approx(float(expected), rel=1e-4)
    assert sft.overfitting([]) is None and sft.overfitting([(1, 9.0)]) is None
    assert sft.overfitting([(1, 1.0), (2, 2.0), (3, 1.05)]) is None
    said = sft.overfitting([(1, 2.0), (5, 1.0), (9, 1.06)])
    assert said is not None and said.startswith("the loss on held-out rows was 1 after 5 of 9 steps and is 1.06 now")


@pytest.mark.parametrize(("steps", "looks"), [(8, [2, 4, 6, 8]), (3, [1, 2, 3]), (10, [3, 5, 8, 10])])
def test_the_held_out_loss_is_measured_four_times(steps: int, looks: list[int], tmp_path: Path) -> None:
    rows = [Row([given([1, 2]), given([3 + i], ce=1.0)]) for i in range(steps)]
    logged: dict[int, dict[str, float]] = {}
    settings = SftSettings(batch=1, epochs=1.0, checkpoint_every=100)
    rewound: list[int] = []
    folder = sft.train(
        make_tiny(), rows, rows[:1], settings, tmp_path, 0, lambda step, values: logged.update({step: values}),
        rewound.append, group_sizes=[1] * steps,
    )  # fmt: skip
    assert [step for step, values in logged.items() if "held_out_ce" in values] == looks
    assert folder.name == f"step-{steps:06d}" and rewound == [0] and all(v["rows"] == 1.0 for v in logged.values())


def test_weights_that_are_not_finite_are_never_kept_and_the_step_is_named(tmp_path: Path) -> None:
    language, rows = make_tiny(), [Row([given([1, 2]), given([3 + i], ce=1.0)]) for i in range(4)]

    def spoil(step: int, values: dict[str, float]) -> None:
        if step == 2:
            with torch.no_grad():
                next(language.backbone.parameters()).fill_(float("nan"))

    with pytest.raises(OneiroError, match="step 2: the weights"):
        sft.train(language, rows, [], SftSettings(batch=1, epochs=1.0, checkpoint_every=1), tmp_path, 0, spoil)
    assert sorted(checkpoints(tmp_path)) == [1]
