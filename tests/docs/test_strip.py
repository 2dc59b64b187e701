"""The README's picture."""

from __future__ import annotations

import pytest

from tools.strip import STEPS, draw, is_shown

STATES = ["P _\n_ O", "_ P\n_ O"]


def episode(wrong: int, steps: int = STEPS, success: bool = True) -> dict:
    """A walk from side to side; at the step `wrong` the walker is predicted to stay."""
    turns = [
        {"state": STATES[step % 2], "next_state": STATES[1 - step % 2], "actions": [("Right", "Left")[step % 2]]}
        for step in range(steps)
    ]
    for step, turn in enumerate(turns):
        turn["prediction"] = turn["state" if step == wrong else "next_state"]
    return {"world": "frozen-lake", "success": success, "turns": turns}


def test_wrong_tiles_are_framed_and_nothing_else() -> None:
    picture = draw(episode(wrong=2))
    assert picture.count('class="world"') == 3 * STEPS and picture.count("→ Right") == 3
    assert picture.count('class="differs"') == 2  # where the walker is, and where it should be
    assert picture.count('width="104" height="104"') == 3 * STEPS


@pytest.mark.parametrize("other", [episode(-1), episode(0, success=False), episode(0, steps=STEPS - 1)])
def test_an_episode_without_all_that_is_shown_is_not_taken(other: dict) -> None:
    assert is_shown(episode(0)) and not is_shown(other)
