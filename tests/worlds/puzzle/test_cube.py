"""The 2x2 cube: group theory, a cubie model as second implementation, known distance counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.worlds import make
from oneiro.worlds.base import in_split
from oneiro.worlds.puzzle.cube import MOVES, SOLVED, distance, distances, holds, is_solved, key_of, sources, turn_side

# Corners in the order URF UFL ULB UBR DFR DLF DBL DRB: for each clockwise turn, where each place's corner comes
# from and how much it is twisted (Kociemba's numbering).
CUBIES = {
    "U": ((3, 0, 1, 2, 4, 5, 6, 7), (0, 0, 0, 0, 0, 0, 0, 0)),
    "R": ((4, 1, 2, 0, 7, 5, 6, 3), (2, 0, 0, 1, 1, 0, 0, 2)),
    "F": ((1, 5, 2, 3, 0, 4, 6, 7), (1, 2, 0, 0, 2, 1, 0, 0)),
    "D": ((0, 1, 2, 3, 5, 6, 7, 4), (0, 0, 0, 0, 0, 0, 0, 0)),
    "L": ((0, 2, 6, 3, 4, 1, 5, 7), (0, 1, 2, 0, 0, 2, 1, 0)),
    "B": ((0, 1, 3, 7, 4, 5, 2, 6), (0, 0, 1, 2, 0, 0, 2, 1)),
}


def order_of(sequence: list[str]) -> int:
    """How often a sequence of stickers' turns must be repeated until every sticker is home."""
    place = tuple(range(24))
    start, times = place, 0
    while True:
        for move in sequence:
            place = tuple(place[source] for source in sources()[move])
        times += 1
        if place == start:
            return times


def cubie_order(sequence: list[str]) -> int:
    """The same with the cubie model."""
    corners, twists = list(range(8)), [0] * 8
    times = 0
    while True:
        for move in sequence:
            for _ in range(3 if move.endswith("'") else 1):
                came, added = CUBIES[move[0]]
                twists = [(twists[c] + a) % 3 for c, a in zip(came, added, strict=True)]
                corners = [corners[c] for c in came]
        times += 1
        if corners == list(range(8)) and not any(twists):
            return times


def test_every_turn_has_order_four_and_undoes_its_inverse() -> None:
    for face in "UDLRFB":
        assert order_of([face]) == 4
        assert order_of([face, f"{face}'"]) == 1
        assert sum(source != place for place, source in enumerate(sources()[face])) == 12


def test_r_then_b_has_order_fifteen() -> None:
    assert order_of(["R", "B"]) == 15


def test_products_of_turns_have_the_orders_of_a_real_cube() -> None:
    rng = np.random.default_rng(0)
    sequences = [[a, b] for a in MOVES for b in MOVES] + [rng.choice(MOVES, 4).tolist() for _ in range(40)]
    for sequence in sequences:
        assert order_of(sequence) == cubie_order(sequence), sequence


def test_r_brings_the_front_face_up() -> None:
    cube = turn_side(SOLVED, "R")
    # Up face: its right column now shows the front colour (2); front shows down (5) there.
    assert cube[0:4] == (0, 2, 0, 2) and cube[8:12] == (2, 5, 2, 5)
    assert cube[12:16] == (3, 3, 3, 3)


def test_there_are_24_ways_to_hold_a_cube_and_all_of_them_are_solved() -> None:
    assert len(holds()) == 24
    assert all(is_solved(tuple(SOLVED[source] for source in hold)) for hold in holds())
    assert not is_solved(turn_side(SOLVED, "R"))


def test_the_number_of_states_at_each_distance_is_the_known_one() -> None:
    known = [1, 6, 27, 120, 534, 2256, 8969, 33058, 114149, 360508, 930588, 1350852, 782536, 90280, 276]
    found = Counter(distances().tolist())
    assert [found[depth] for depth in range(15)] == known and sum(found.values()) == 3_674_160


def test_distances_agree_with_a_plain_search_near_the_goal() -> None:
    layer = {tuple(SOLVED[source] for source in hold) for hold in holds()}
    seen = set(layer)
    for depth in range(1, 4):
        layer = {turn_side(cube, move) for cube in layer for move in MOVES} - seen
        seen |= layer
        for cube in sorted(layer)[::97]:
            assert distance(cube) == depth


def test_levels_are_exactly_as_far_as_stated_and_the_oracle_needs_no_more() -> None:
    for variant, turns in (("cube", 3), ("cube:five", 5)):
        world = make(variant)
        for seed in range(10):
            _, info = world.reset(seed=seed)
            assert info["optimum"] == turns == distance(world.state)
            steps = 0
            while not world.over:
                _, reward, done, _, _ = world.step(world.oracle())
                steps += 1
            assert done and reward == 1.0 and steps == turns


def test_moves_are_read_in_either_case_and_apostrophe() -> None:
    world = make("cube")
    world.reset(seed=0)
    start = world.state
    world.step("r")
    world.step(" R’ ")
    assert world.state == start
    assert world.step("R2")[4]["valid"] is False and world.step("turn right")[4]["valid"] is False


def test_colours_must_be_six_letters() -> None:
    with pytest.raises(OneiroError, match="six different letters"):
        make("cube", colours="WWGRBY")


@pytest.mark.parametrize("scramble", [1, 2, 3, 4])
def test_the_splits_share_no_cube_however_it_is_held_and_both_have_levels(scramble: int) -> None:
    world = make("cube", scramble=scramble)
    drawn = {}
    for split in ("train", "eval"):
        drawn[split] = {}
        for seed in range(150):
            _, info = world.reset(seed=seed, options={"split": split})
            # The 24 ways to hold a cube, by the permutations alone: the least of them names it.
            drawn[split][info["key"]] = min(tuple(world.state[source] for source in hold) for hold in holds())
        assert len(set(drawn[split].values())) == len(drawn[split])  # one key for one cube
    assert drawn["train"] and drawn["eval"]
    assert not set(drawn["train"].values()) & set(drawn["eval"].values())
    assert not drawn["train"].keys() & drawn["eval"].keys()


def test_one_cube_in_eight_is_held_out_at_every_distance() -> None:
    layer, seen = {SOLVED}, {tuple(SOLVED[source] for source in hold) for hold in holds()}
    for cubes in (6, 27, 120):
        layer = {turn_side(cube, move) for cube in layer for move in MOVES} - seen
        seen |= {tuple(cube[source] for source in hold) for cube in layer for hold in holds()}
        keys = {key_of(cube) for cube in layer}
        assert len(keys) == cubes  # the known numbers of cubes, so no key depends on how one is held
        assert sum(in_split(key, "eval") for key in keys) == -(-cubes // 8)
