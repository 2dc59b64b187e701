"""A batch is N worlds: the same levels, texts, rewards and ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.worlds import make
from oneiro.worlds.grid.vector import make_batch

ROWS = 24


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("frozen-lake:slippery", {}),
        ("frozen-lake:6x6", {"view": "spaced"}),
        ("sokoban", {"view": "spaced"}),
        ("sokoban:two-boxes", {"max_actions": 40}),
        ("sokoban:grid-vocab", {}),
        ("sokoban:action-vocab", {}),
        ("sudoku", {}),
        ("sudoku:9x9", {"view": "spaced", "max_actions": 30}),
    ],
)
def test_a_batch_does_what_single_worlds_do(name: str, settings: dict[str, Any]) -> None:
    batch, worlds = make_batch(name, **settings), [make(name, **settings) for _ in range(ROWS)]
    member_ids = [row % 3 for row in range(ROWS)]
    first = [
        world.reset(seed=row, options={"split": "train", "member": member_ids[row]})[0]
        for row, world in enumerate(worlds)
    ]
    assert batch.reset(range(ROWS), split="train", member_ids=member_ids) == first
    rng = generator("test", name)
    for _ in range(worlds[0].config.max_actions + 1):
        actions = ["what?" if rng.random() < 0.1 else world.random_action(rng) for world in worlds]
        found = batch.step(actions)
        expected = [world.step(action) for world, action in zip(worlds, actions, strict=True)]
        assert found.observations == [step[0] for step in expected]
        assert np.allclose(found.rewards, [step[1] for step in expected])
        assert found.terminated.tolist() == [step[2] for step in expected]
        assert found.truncated.tolist() == [step[3] for step in expected]
        for key in ("valid", "effective", "success"):
            assert getattr(found, key).tolist() == [step[4][key] for step in expected]
    assert batch.over.all()


def test_other_views_are_the_single_worlds() -> None:
    with pytest.raises(OneiroError, match="no view 'coordinates'"):
        make_batch("sokoban", view="coordinates")
