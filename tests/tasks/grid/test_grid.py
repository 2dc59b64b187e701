"""Grids: the truth as a model is the world itself, memory is memory, and a model's nonsense changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from oneiro.models.language import LanguageModel
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.answering import true_rows
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.tasks.grid import (
    GridLookup,
    GridModel,
    GridPredictor,
    GridPredictorConfig,
    GridSituation,
    GridTransition,
    LearnedFrozenLake,
    LookupModel,
    TrueLake,
)
from oneiro.worlds.grid.frozen_lake.world import FrozenLake, FrozenLakeConfig
from oneiro.worlds.registry import WorldChoice

SPACED = FrozenLakeConfig(view="spaced")


def walk(world: FrozenLake, seed: int, rng: np.random.Generator) -> list[GridTransition]:
    state, _ = world.reset(seed=seed, options={"split": "train"})
    steps = []
    while not world.over:
        action = world.random_action(rng)
        after = world.step(action)[0]
        steps.append(GridTransition(state, action, after))
        state = after
    return steps


@pytest.mark.parametrize("view", ["spaced", "text", "grid+coordinates"])
def test_a_learned_world_with_the_truth_as_its_model_is_the_true_world(view: str) -> None:
    config = FrozenLakeConfig(view=view)
    true, learned = FrozenLake(config), LearnedFrozenLake(TrueLake(FrozenLake(config)), config)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        assert true.reset(seed=seed) == learned.reset(seed=seed)
        while not true.over:
            action = true.random_action(rng)
            wanted, found = true.step(action), learned.step(f" {action.upper()} ")
            assert found[:4] == wanted[:4]
            assert {**found[4], "malformed": False} == {**wanted[4], "malformed": False}
        assert learned.over and learned.step("Left") == true.step("Left")


def test_on_slippery_ice_the_truth_has_the_lakes_chances() -> None:
    config = FrozenLakeConfig(view="spaced", success_rate=0.5)
    lake = FrozenLake(config)
    lake.reset(seed=1)
    lake.lake = lake.lake._replace(holes=frozenset(), goal=0, player=5)  # (1,1)
    found = TrueLake(lake).predict([(lake.render(), "Right")], outcomes=4000, seed=3)[0]
    cells = [lake.parse(one.state).player for one in found if isinstance(one.state, str)]  # type: ignore[union-attr]
    shares = {cell: cells.count(cell) / 4000 for cell in set(cells)}
    assert shares == {
        6: pytest.approx(0.5, abs=0.03),
        1: pytest.approx(0.25, abs=0.03),
        9: pytest.approx(0.25, abs=0.03),
    }


class Nonsense(Dynamics[str]):
    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        return [[Imagined(Malformed(Flaw.BROKEN))] * outcomes for _ in pairs]


def test_an_unreadable_prediction_changes_nothing_and_is_told() -> None:
    world = LearnedFrozenLake(Nonsense(), SPACED)
    start, _ = world.reset(seed=0)
    state, reward, terminated, truncated, info = world.step("Left")
    assert (state, reward, terminated, truncated) == (start, 0.0, False, False)
    assert info["malformed"] and info["valid"] and not info["effective"] and world.taken == 1
    assert not world.step("Fly")[4]["valid"]


def test_the_lookup_writes_the_nearest_change_into_the_state() -> None:
    near = GridTransition("P _\n_ G", "Right", "_ P\n_ G")
    far = GridTransition("O P\nG _", "Right", "O P\nG _")
    lookup = GridLookup([far, near])
    assert lookup(GridSituation("P _\nO G", "Right")) == "_ P\nO G"  # one character from `near`, three from `far`
    assert lookup(GridSituation("P _\nO G", "Left")) == "P _\nO G"  # no such action is known
    assert lookup(GridSituation("P", "Right")) == "P"  # another size
    model = LookupModel(
        GridPredictor(GridPredictorConfig(world=WorldChoice(name="frozen-lake", size=2, view="spaced"))), lookup
    )
    assert model.predict([("P _\nO G", "Right")], outcomes=2) == [[Imagined("_ P\nO G")] * 2]


@pytest.mark.parametrize(
    "text", ["", "\n\n", "P", "P P P P\n_ _ _ _\n_ _ _ _\n_ _ _ G", "_" * 100_000, "\ud800", "<script>"]
)
def test_parsing_is_total(text: str) -> None:
    assert isinstance(GridPredictor().parse(text, GridSituation("", "Left")), Malformed)


def test_a_model_that_knows_nothing_gives_typed_flaws_and_rows_carry_loss_on_the_answer_only(
    tiny: LanguageModel,
) -> None:
    model = GridModel(GridPredictor(), Engine(tiny, 4), SamplingSettings(max_tokens=8))
    case = walk(FrozenLake(SPACED), 0, np.random.default_rng(0))[0]
    found = model.predict([(case.state, case.action)] * 2, outcomes=3, seed=1)
    assert [len(one) for one in found] == [3, 3]
    assert all(isinstance(one.state, Malformed) and 1 <= one.tokens <= 8 for one in found[0])
    assert model.predict([(case.state, case.action)]) == model.predict([(case.state, case.action)], seed=5)  # greedy
    (row,) = true_rows(model.task, model.chat, [case])
    learned = [token for segment in row.segments if segment.weights.get("ce") for token in segment.tokens]
    assert tiny.decode(learned[:-1]) == case.after and learned[-1] == tiny.tokenizer.eos_token_id


def test_nobody_leaves_a_hole_or_the_goal() -> None:
    lake = FrozenLake(FrozenLakeConfig(view="spaced", success_rate=1.0))
    lake.reset(seed=1)
    for player, leaves in ((1, False), (15, False), (0, True)):
        lake.lake = lake.lake._replace(holes=frozenset({1}), goal=15, player=player)
        state = lake.render()
        assert (TrueLake(lake).predict([(state, "Down")])[0][0].state != state) is leaves
