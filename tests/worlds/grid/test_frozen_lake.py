"""The lake: dynamics against gymnasium's table, dynamic programming against brute force, published numbers."""

from __future__ import annotations

from collections import Counter, deque
from functools import cache

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import seeding

from oneiro.runtime.errors import OneiroError
from oneiro.worlds import make
from oneiro.worlds.baselines import ceiling, oracle_success, random_success
from oneiro.worlds.grid.frozen_lake.views import VIEWS, Lake, LakeGlyphs, read
from oneiro.worlds.grid.frozen_lake.world import (
    SHIFTS,
    WORDS,
    FrozenLake,
    FrozenLakeConfig,
    LakeLevel,
    TargetLake,
    best_possible,
    has_target,
    level_for,
    level_in,
    neighbours,
    path_length,
    slip,
    success_values,
)

# P _ O
# _ O G
# _ _ _
SMALL = Lake(size=3, holes=frozenset({2, 4}), goal=5, player=0)


def chance(lake: Lake, cell: int, left: int, rate: float) -> float:
    """Best success probability by plain recursion over rows and columns."""

    @cache
    def best(row: int, column: int, left: int) -> float:
        here = row * lake.size + column
        if here == lake.goal:
            return 1.0
        if here in lake.holes or left == 0:
            return 0.0
        after = []
        for down, right in SHIFTS:
            new_row, new_column = row + down, column + right
            inside = 0 <= new_row < lake.size and 0 <= new_column < lake.size
            after.append(best(new_row, new_column, left - 1) if inside else best(row, column, left - 1))
        side = (1 - rate) / 2
        return max(rate * after[a] + side * after[a - 1] + side * after[(a + 1) % 4] for a in range(4))

    return best(*divmod(cell, lake.size), left)


def published_level(seed: int, size: int) -> Lake:
    """The level that RAGEN's environment draws for a seed, from the description of its generator."""
    rng, _ = seeding.np_random(seed)
    while True:
        holes = rng.choice(["F", "H"], (size, size), p=[0.8, 0.2]) == "H"
        start, goal = (int(r * size + c) for r, c in (rng.integers(size, size=2) for _ in range(2)))
        if start == goal:
            continue
        holes = holes.ravel()
        holes[[start, goal]] = False
        if path_length(holes, size, start, goal) is not None:
            return Lake(size, frozenset(np.flatnonzero(holes).tolist()), goal, start)


@pytest.mark.parametrize("rate", [1 / 3, 0.8, 1.0])
def test_values_equal_brute_force_recursion(rate: float) -> None:
    for seed in range(5):
        world = make("frozen-lake", success_rate=rate, size=3 + seed % 3, max_actions=7)
        world.reset(seed=seed)
        values = success_values(world.state, rate, 7)
        for cell in range(world.state.size**2):
            for left in (0, 1, 4, 7):
                assert values[left, cell] == pytest.approx(chance(world.state, cell, left, rate), abs=1e-12)


@pytest.mark.parametrize("rate", [1 / 3, 0.7, 1.0])
def test_transitions_equal_gymnasiums_table(rate: float) -> None:
    names = {0: "S", 5: "G", 2: "H", 4: "H"}
    rows = ["".join(names.get(3 * row + column, "F") for column in range(3)) for row in range(3)]
    table = gymnasium.make(
        "FrozenLake-v1", desc=rows, is_slippery=rate < 1, **({"success_rate": rate} if rate < 1 else {})
    ).unwrapped.P
    world = FrozenLake(FrozenLakeConfig(size=3, success_rate=rate))
    world.reset(seed=0)
    lucks = (np.arange(3000) + 0.5) / 3000
    for cell in (0, 1, 3, 6, 7, 8):
        for action, word in enumerate(WORDS):
            expected: Counter[tuple[int, float, bool]] = Counter()
            for probability, after, reward, done in table[cell][action]:
                expected[(after, float(reward), done)] += probability
            found: Counter[tuple[int, float, bool]] = Counter()
            for direction, times in Counter(slip(action, luck, rate) for luck in lucks).items():
                world.lake, world.taken, world.over = Lake(3, SMALL.holes, SMALL.goal, cell), 0, False
                world._slips = AlwaysTaking(direction, action, rate)
                _, reward, done, _, _ = world.step(word)
                found[(world.lake.player, reward, done)] += times / 3000
            assert found.keys() == expected.keys()
            for outcome, probability in expected.items():
                assert found[outcome] == pytest.approx(probability, abs=1e-3)


class AlwaysTaking:
    """A random stream that makes the world slip in one direction."""

    def __init__(self, direction: int, chosen: int, rate: float) -> None:
        self.luck = {0: 0.0, 1: rate + (1 - rate) / 4, 3: 1 - (1 - rate) / 4}[(direction - chosen) % 4]

    def random(self) -> float:
        return self.luck


def test_slips_happen_at_the_stated_rate() -> None:
    world = make("frozen-lake", success_rate=0.6, size=9, frozen_probability=1.0, max_actions=10**6)
    taken = Counter()
    world.reset(seed=3)
    for _ in range(6000):
        world.lake = Lake(9, frozenset(), 0, 40)
        world.over = False
        world.step("Right")
        taken[world.state.player] += 1
    assert set(taken) == {41, 31, 49}
    # Four standard errors of 6000 draws.
    assert taken[41] / 6000 == pytest.approx(0.6, abs=0.026)
    assert taken[31] / 6000 == pytest.approx(0.2, abs=0.021)


def test_published_evaluation_levels_have_the_published_ceilings() -> None:
    for size, expected in ((4, (0.466, 0.876, 1.0)), (6, (0.229, 0.749, 0.969))):
        levels = [published_level(seed, size) for seed in range(123, 251)]
        for rate, mean in zip((1 / 3, 0.8, 1.0), expected, strict=True):
            assert np.mean([success_values(lake, rate, 10)[10, lake.player] for lake in levels]) == pytest.approx(
                mean, abs=1e-3
            )


def test_own_levels_are_as_hard_as_the_published_ones() -> None:
    # 3000 published levels give 0.504 and 0.906; the tolerance is four standard errors of 150 levels.
    assert ceiling("frozen-lake:slippery", 150).mean() == pytest.approx(0.504, abs=0.1)
    assert ceiling("frozen-lake:mostly-sure", 150).mean() == pytest.approx(0.906, abs=0.05)
    assert ceiling("frozen-lake", 150).mean() > 0.99
    assert random_success("frozen-lake", 150, 2).mean() == pytest.approx(0.2, abs=0.1)


def test_oracle_takes_a_shortest_path_on_firm_ice() -> None:
    world = make("frozen-lake", size=6, max_actions=30)
    for seed in range(20):
        _, info = world.reset(seed=seed)
        steps = 0
        while not world.over:
            _, reward, _, _, _ = world.step(world.oracle())
            steps += 1
        assert reward == 1.0 and steps == info["optimum"]


def test_oracle_reaches_the_ceiling_on_slippery_ice() -> None:
    expected = ceiling("frozen-lake:slippery", 40)
    found = oracle_success("frozen-lake:slippery", 40, 8)
    error = np.sqrt((expected * (1 - expected)).sum() / 8) / 40
    assert abs(found.mean() - expected.mean()) < 4 * error


def test_rewards_and_ends_follow_the_rules() -> None:
    world = make("frozen-lake", size=3)
    world.reset(seed=0)
    world.lake = SMALL
    shown, reward, done, truncated, info = world.step(" dOWn ")
    assert (reward, done, truncated) == (0.0, False, False) and info["valid"] and info["effective"]
    assert shown == "__O\nPOG\n___"
    assert world.step("Left")[4] == {"valid": True, "effective": False, "success": False}
    assert world.step("Downwards")[4] == {"valid": False, "effective": False, "success": False}
    fallen = world.step("Right")
    assert fallen[0] == "__O\n_XG\n___" and fallen[1:4] == (0.0, True, False)
    world.reset(seed=0)
    world.lake = Lake(3, SMALL.holes, SMALL.goal, player=8)
    won = world.step("UP")
    assert won[0] == "__O\n_O√\n___" and won[1:4] == (1.0, True, False) and won[4]["success"]
    assert world.step("Down")[1:3] == (0.0, True)


def test_budget_truncates() -> None:
    world = make("frozen-lake", max_actions=3)
    world.reset(seed=0)
    flags = [world.step("nonsense")[2:4] for _ in range(3)]
    assert flags == [(False, False), (False, False), (False, True)]


def test_views_show_the_state_as_specified() -> None:
    glyphs = LakeGlyphs()
    assert VIEWS["text"](SMALL, 0, glyphs) == "P_O\n_OG\n___"
    assert VIEWS["spaced"](SMALL, 0, glyphs) == "P _ O\n_ O G\n_ _ _"
    assert VIEWS["coordinates"](SMALL, 0, glyphs) == "Player (0,0); holes at (0,2) and (1,1); goal at (1,2)."
    assert VIEWS["grid_coord"](SMALL, 0, glyphs) == (
        "Coordinates: \nBoard size: 3 rows x 3 cols (zero-indexed).\nStart: (0, 0)\nGoal: (1, 2)\nPlayer: (0, 0)\n"
        "Holes: (0, 2), (1, 1)\nGrid Map: \nP_O\n_OG\n___"
    )
    sentence = VIEWS["coordinates"](SMALL, 0, glyphs)
    assert VIEWS["spaced+coordinates"](SMALL, 0, glyphs) == f"P _ O\n_ O G\n_ _ _\n{sentence}"
    for view in ("grid+coordinates", "spaced+coordinates", "grid+wrong-coordinates", "spaced+wrong-coordinates"):
        shown = VIEWS[view](SMALL, 0, glyphs)
        assert read(view, shown, 3, glyphs) == SMALL
        assert (sentence in shown) == ("wrong" not in view)
    moved = SMALL._replace(player=3)
    assert read("grid_coord", VIEWS["grid_coord"](moved, 0, glyphs), 3, glyphs) == moved


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("coordinates", "Player (0,0); hole at (0,2)(1,1)dan; goal at (1,2)."),
        ("coordinates", "Player (0,0); holes at (1,1) and (0,2); goal at (1,2)."),
        ("grid_coord", "Start: (0, 0)\nGoal: (2, 2)\nGrid Map: \nP_O\n_OG\n___"),
        ("grid+coordinates", "P_O\n_OG\n___\nPlayer (0,1); holes at (0,2) and (1,1); goal at (1,2)."),
    ],
)
def test_a_text_that_is_not_what_a_view_shows_is_not_read(view: str, text: str) -> None:
    assert read(view, text, 3, LakeGlyphs()) is None


def test_legend_and_grid_use_the_configured_glyphs() -> None:
    world = make("frozen-lake", glyphs={"player": "A", "hole": "h"})
    shown, _ = world.reset(seed=0)
    assert "A you" in world.instruction and "h hole" in world.instruction
    assert "P" not in shown and "A" in shown
    assert world.parse(shown) == world.state
    with pytest.raises(OneiroError, match="share a glyph"):
        make("frozen-lake", glyphs={"player": "O"})
    with pytest.raises(OneiroError, match="did you mean 'player'"):
        make("frozen-lake", glyphs={"playr": "A"})


def test_members_share_the_level_and_not_the_luck() -> None:
    world = make("frozen-lake:slippery", frozen_probability=1.0, size=8)
    paths = set()
    for member in range(6):
        first, info = world.reset(seed=5, options={"member": member})
        paths.add((first, info["key"], tuple(world.step("Right")[0] for _ in range(8))))
    assert len({path[:2] for path in paths}) == 1
    assert len(paths) == 6


def test_splits_share_no_level_even_on_a_tiny_map() -> None:
    world = make("frozen-lake", size=2)
    keys = {
        split: {world.reset(seed=seed, options={"split": split})[1]["key"] for seed in range(200)}
        for split in ("train", "eval")
    }
    assert keys["train"] and keys["eval"] and not keys["train"] & keys["eval"]
    with pytest.raises(OneiroError, match="unknown split 'test'"):
        world.reset(seed=0, options={"split": "test"})


def test_no_walk_on_training_levels_passes_an_evaluation_level() -> None:
    """The state an evaluation begins with is none that training has seen: another start on known ice is known."""
    world, rng = make("frozen-lake"), np.random.default_rng(0)
    passed = set()
    for seed in range(600):
        passed.add(world.reset(seed=seed, options={"split": "train"})[0])
        while not world.over:
            passed.add(world.step(world.random_action(rng))[0])
    begun = {world.reset(seed=seed, options={"split": "eval"})[0] for seed in range(200)}
    turned = {image for text in begun for image in images(text)}
    assert len(begun) > 150 and len(turned) > 800 and not turned & passed


def images(text: str) -> list[str]:
    """A map in all its rotations and mirrors."""
    board = np.array([list(line) for line in text.split("\n")])
    turned = [np.rot90(side, turns) for side in (board, np.fliplr(board)) for turns in range(4)]
    return ["\n".join("".join(row) for row in image) for image in turned]


def test_levels_have_one_canonical_name_exactly_if_they_are_equal_up_to_symmetry() -> None:
    levels = [level_for(size, 0.8, seed, None) for size in (3, 4) for seed in range(400)]
    texts = [VIEWS["text"](level.lake, level.lake.player, LakeGlyphs()) for level in levels]
    least = [min(images(text)) for text in texts]
    names = [level.canonical for level in levels]
    assert len(set(least)) == len(set(names)) == len(set(zip(least, names, strict=True))) < len(set(texts))


def test_turned_maps_and_other_starts_on_them_share_a_split() -> None:
    for seed in range(60):
        level = level_for(4, 0.8, seed, None)
        turned = [level_in(image, level.optimum, 4) for image in images(VIEWS["text"](level.lake, 0, LakeGlyphs()))]
        assert {other.canonical for other in turned} == {level.canonical}
        elsewhere = [
            LakeLevel(other.lake._replace(player=cell), 1)
            for other in turned
            for cell in set(range(16)) - other.lake.holes - {other.lake.goal}
        ]
        assert {other.key[-1] for other in elsewhere} == {other.canonical[-1] for other in elsewhere} == {level.key[-1]}
        assert len({other.key for other in elsewhere}) == len({other.lake for other in elsewhere})


@pytest.mark.parametrize("size", [3, 4, 5, 8, 9])
def test_lakes_without_holes_have_levels_in_both_splits(size: int) -> None:
    for split in ("train", "eval"):
        assert level_for(size, 1.0, 0, split).lake.holes == frozenset()


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_ice_may_slip_more_often_than_not(rate: float) -> None:
    """Where a move never goes ahead, walking sideways is the way: chances follow brute force all the same."""
    values = success_values(SMALL, rate, 6)
    assert values[6, SMALL.player] == pytest.approx(chance(SMALL, SMALL.player, 6, rate))
    assert make("frozen-lake", success_rate=rate).reset(seed=0)


def reachable(world: TargetLake) -> bool:
    """Whether the target can be reached within the budget, past no hole and not over the old goal."""
    lake, front, seen = world.lake, deque([(world.lake.player, 0)]), {world.lake.player}
    while front:
        cell, length = front.popleft()
        if cell == world.target:
            return length <= world.config.max_actions
        for there in neighbours(lake.size)[cell].tolist():
            if there not in seen and there not in lake.holes and there != lake.goal:
                seen.add(there)
                front.append((there, length + 1))
    return False


def test_every_target_can_be_reached_and_is_new() -> None:
    world = TargetLake(FrozenLakeConfig())
    for seed in range(30):
        _, info = world.reset(seed=seed, options={"split": "eval"})
        if has_target(world, seed):
            assert world.target not in (world.lake.player, world.lake.goal) and reachable(world)
            assert best_possible(world, [seed]) == [1.0]
        assert info["target"] == world.target


def test_only_the_target_is_a_success_and_the_old_goal_ends_the_episode_in_vain() -> None:
    world = TargetLake(FrozenLakeConfig())
    seed = next(seed for seed in range(100) if has_target(world, seed))
    true = FrozenLake(world.config)
    for goal in ("goal", "target"):
        world.reset(seed=seed, options={"split": "eval"})
        true.reset(seed=seed, options={"split": "eval"})
        cell = world.lake.goal if goal == "goal" else world.target
        for lake in (world, true):  # one move away from it
            beside = next(n for n in neighbours(4)[cell].tolist() if n != cell)
            lake.lake = lake.lake._replace(player=beside, holes=frozenset())
        move = next(a for a in world.actions if neighbours(4)[beside, world.actions.index(a)] == cell)
        state, reward, terminated, truncated, info = world.step(move)
        assert (terminated, truncated, info["success"], reward) == (
            True,
            False,
            goal == "target",
            float(goal == "target"),
        )
        assert state == true.step(move)[0]  # the dynamics are the old ones
        assert world.step("Left")[1] == 0
