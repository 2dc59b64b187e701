"""Sudoku: puzzles with one solution, SPA's rules, exact texts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from oneiro.runtime.errors import OneiroError
from oneiro.worlds import make
from oneiro.worlds.base import NEITHER, in_split
from oneiro.worlds.baselines import random_success
from oneiro.worlds.grid.sudoku.levels import (
    Puzzle,
    full_grid,
    small_grids,
    solution_form,
    solution_held_out,
    solutions,
    split_key,
)
from oneiro.worlds.grid.sudoku.world import SudokuBoard, puzzle_for, read_action


def groups(size: int) -> list[list[int]]:
    """Rows, columns and boxes."""
    box = round(size**0.5)
    rows = [[size * r + c for c in range(size)] for r in range(size)]
    columns = [[size * r + c for r in range(size)] for c in range(size)]
    boxes = [
        [size * (box * br + r) + box * bc + c for r in range(box) for c in range(box)]
        for br in range(box)
        for bc in range(box)
    ]
    return rows + columns + boxes


def brute_force(cells: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every way to complete a 4x4 board, by trying all combinations of missing digits row by row."""
    rows = []
    for first in range(0, 16, 4):
        row = cells[first : first + 4]
        rows.append(
            [p for p in itertools.permutations(range(1, 5)) if all(g in (0, d) for g, d in zip(row, p, strict=True))]
        )
    found = []
    for choice in itertools.product(*rows):
        flat = tuple(itertools.chain(*choice))
        if all(len({flat[cell] for cell in group}) == 4 for group in groups(4)):
            found.append(flat)
    return found


@pytest.mark.parametrize("variant", ["sudoku", "sudoku:medium", "sudoku:hard"])
def test_small_puzzles_have_the_stated_clues_and_one_solution(variant: str) -> None:
    world = make(variant)
    for seed in range(25):
        _, info = world.reset(seed=seed)
        assert brute_force(world.puzzle.givens) == [world.puzzle.solution]
        assert info["optimum"] == world.puzzle.givens.count(0) == 16 - world.config.given


def test_large_puzzles_have_one_solution() -> None:
    world = make("sudoku:9x9")
    for seed in range(5):
        world.reset(seed=seed)
        assert world.puzzle.givens.count(0) == 45
        assert solutions(world.puzzle.givens, 9) == [world.puzzle.solution]
        assert all(len({world.puzzle.solution[cell] for cell in group}) == 9 for group in groups(9))


def test_the_solver_finds_more_than_one_solution() -> None:
    # There are 288 finished 4x4 grids.
    assert len(set(solutions((0,) * 16, 4, limit=300))) == 288


def renamed(cells: Sequence[int]) -> tuple[int, ...]:
    """The digits renamed in the order in which they come; 0 stays."""
    names = {0: 0}
    return tuple(names.setdefault(digit, len(names)) for digit in cells)


def turned(cells: Sequence[int]) -> list[NDArray[np.int64]]:
    """The board in all its rotations and mirrors."""
    size = round(len(cells) ** 0.5)
    board = np.array(cells).reshape(size, size)
    return [np.rot90(side, turns) for side in (board, np.fliplr(board)) for turns in range(4)]


def exchanged(cells: Sequence[int]) -> Iterator[NDArray[np.int64]]:
    """A 4x4 board with lines exchanged in every way that keeps rows, columns and boxes what they are."""
    lines = [order for order in itertools.permutations(range(4)) if order[0] // 2 == order[1] // 2]
    board = np.array(cells).reshape(4, 4)
    for rows, columns in itertools.product(lines, lines):
        yield board[np.ix_(rows, columns)]
        yield board[np.ix_(rows, columns)].T


def least(boards: Iterable[NDArray[np.int64]]) -> tuple[int, ...]:
    return min(renamed(board.ravel().tolist()) for board in boards)


def test_small_solutions_are_as_many_up_to_symmetry_as_known() -> None:
    # 288 grids are 12 up to their digits, and 2 up to all symmetries; the names tell 5 up to digits, turns and mirrors.
    grids = small_grids()
    assert len(grids) == 288 and len({renamed(grid) for grid in grids}) == 12
    assert sorted(Counter(solution_form(grid)[0] for grid in grids).values()) == [96, 192]
    assert sorted(Counter(split_key(grid) for grid in grids).values()) == [24, 24, 48, 96, 96]
    assert len({(split_key(grid), least(turned(grid))) for grid in grids}) == 5
    assert sum(solution_held_out(grid) for grid in grids) == 96
    assert len({full_grid(np.random.default_rng(seed), 4) for seed in range(3000)}) == 288


def test_puzzles_have_one_canonical_name_exactly_if_they_are_equal_up_to_symmetry() -> None:
    puzzles = [puzzle_for(4, clues, seed, None) for clues in (6, 10) for seed in range(150)]
    forms = [least(exchanged(puzzle.givens)) for puzzle in puzzles]
    names = [puzzle.canonical for puzzle in puzzles]
    assert len(set(forms)) == len(set(names)) == len(set(zip(forms, names, strict=True))) < len(puzzles)


def test_large_puzzles_keep_their_name_when_turned_and_renamed() -> None:
    rng = np.random.default_rng(0)
    names = set()
    for seed in range(3):
        puzzle = puzzle_for(9, 40, seed, None)
        images = set()
        for givens, solution in zip(turned(puzzle.givens), turned(puzzle.solution), strict=True):
            digits = np.array([0, *rng.permutation(9) + 1])
            image = Puzzle(9, *(tuple(digits[board].ravel().tolist()) for board in (givens, solution)))
            images.add((image.canonical, image.key[-1]))
        assert images == {(puzzle.canonical, puzzle.key[-1])}
        names.add(puzzle.canonical)
    assert len(names) == 3


@pytest.mark.parametrize("variant", ["sudoku", "sudoku:hard"])
def test_no_evaluation_puzzle_is_like_a_training_puzzle(variant: str) -> None:
    """Not itself up to any symmetry, and not its solution up to digits, rotation and mirror."""
    world, puzzles, solved = make(variant), {}, {}
    for split in ("train", "eval"):
        drawn = []
        for seed in range(80):
            world.reset(seed=seed, options={"split": split})
            drawn.append(world.puzzle)
        puzzles[split] = {least(exchanged(puzzle.givens)) for puzzle in drawn}
        solved[split] = {least(turned(puzzle.solution)) for puzzle in drawn}
    assert not puzzles["train"] & puzzles["eval"] and len(puzzles["eval"]) > 40
    assert not solved["train"] & solved["eval"] and len(solved["train"]) == 4 and len(solved["eval"]) == 1


def test_a_puzzle_that_is_like_both_splits_is_in_neither() -> None:
    keys = [puzzle_for(4, 10, seed, None).key for seed in range(200)]
    neither = [key for key in keys if key.endswith(NEITHER)]
    # Of the 192 solutions that are equal up to all symmetries, half the puzzles would be in both: a third of all.
    assert len(neither) / 200 == pytest.approx(1 / 3, abs=0.11)
    assert not any(in_split(key, split) for key in neither for split in ("train", "eval"))


def known() -> Puzzle:
    givens = (3, 2, 4, 1, 0, 4, 0, 0, 2, 0, 3, 0, 4, 3, 0, 2)
    return Puzzle(4, givens, (3, 2, 4, 1, 1, 4, 2, 3, 2, 1, 3, 4, 4, 3, 1, 2))


def with_known(**settings: object):
    world = make("sudoku", **settings)
    world.reset(seed=0)
    world.puzzle, world.board = known(), SudokuBoard(4, known().givens)
    return world


def test_texts_are_as_specified() -> None:
    world = with_known()
    assert world.render("text") == "| 3 2 4 1 | . 4 . . | 2 . 3 . | 4 3 . 2 "
    assert world.render("grid+coordinates") == (
        "| 3 2 4 1 | . 4 . . | 2 . 3 . | 4 3 . 2 \n"
        "Empty positions to be filled are at (2,1), (2,3), (2,4), (3,2), (3,4), (4,3)."
    )
    assert world.render("spaced") == "3 2 4 1\n. 4 . .\n2 . 3 .\n4 3 . 2"
    for view in ("spaced+coordinates", "grid+wrong-coordinates", "spaced+wrong-coordinates"):
        grid, _, sentence = world.render(view).rpartition("\n")
        assert grid == world.render("spaced" if view.startswith("spaced") else "text")
        assert (sentence == world.render("coordinates")) == (view == "spaced+coordinates")
        assert world.parse(world.render(view), view) == world.state
    full = known().solution
    world.board = SudokuBoard(4, (0, *full[1:]))
    assert world.render("coordinates") == "Empty position to be filled is at (1,1)."
    world.board = SudokuBoard(4, full)
    assert world.render("coordinates") == "There are no empty positions left."


def test_rewards_and_ends_follow_the_published_rules() -> None:
    world = with_known()
    kept = world.board
    for refused in ("1,1,2", "2,1,4", "2,1,2", "1,1,3"):
        # A given, a digit of the row, a digit of the column, a given again.
        _, reward, done, _, info = world.step(refused)
        assert (reward, done, info["valid"], info["effective"]) == (0.0, False, True, False) and world.board == kept
    assert world.step("5,1,1")[4]["valid"] is False and world.step("2,1,0")[4]["valid"] is False
    assert world.step("2,4,3")[4]["effective"] and world.step("2,4,3")[4]["effective"] is False
    for move in ("2,1,1", "2,3,2", "3,2,1", "3,4,4"):
        _, reward, done, _, _ = world.step(move)
        assert reward == 0.0 and not done
    shown, reward, done, truncated, info = world.step("(4,3) = 1")
    assert (reward, done, truncated) == (1.0, True, False) and info["success"] and "." not in shown
    assert world.step("4,3,1")[1:3] == (0.0, True)


def test_own_digits_may_be_overwritten() -> None:
    world = make("sudoku")
    world.reset(seed=0)
    solution = known().solution
    world.puzzle = Puzzle(4, (0, 0, 0, 0, *solution[4:]), solution)
    world.board = SudokuBoard(4, (0, 0, 0, 0, *solution[4:8], 0, 0, 0, 0, *solution[12:]))
    assert world.step("1,1,2")[4]["effective"]
    assert world.step("1,1,3")[4]["effective"]
    assert world.render("spaced").startswith("3 . . .")


def fewest_moves(world, limit: int) -> int | None:
    """Breadth-first search over all boards that moves of this puzzle lead to."""
    layer, seen = {world.board.cells}, {world.board.cells}
    for moves in range(limit + 1):
        if world.puzzle.solution in layer:
            return moves
        after = set()
        for cells in layer:
            for cell, digit in itertools.product(range(16), range(1, 5)):
                if cells[cell] != digit and world._is_allowed(cells, (cell, digit)):
                    after.add((*cells[:cell], digit, *cells[cell + 1 :]))
        layer = after - seen
        seen |= layer
    return None


def test_the_oracles_way_is_a_shortest_one_from_any_board() -> None:
    rng = np.random.default_rng(2)
    world = make("sudoku", clues=9, max_actions=30)
    lost = 0
    for seed in range(30):
        world.reset(seed=seed)
        for _ in range(12):
            world.step(world.random_action(rng))
        if world.over:
            continue
        found, fewest = world._solution(), fewest_moves(world, 14)
        assert (None if found is None else len(found)) == fewest
        lost += fewest is None
    assert lost < 30


@pytest.mark.parametrize(
    "action",
    [
        "2,3,4",
        " 2 , 3 , 4 ".replace(" ,", ","),
        "2 3 4",
        "(2,3,4)",
        "place 4 at row 2 col 3",
        "Place 4 at row 2, column 3.",
        "put 4 in (2,3)",
        "(2, 3): 4",
        "row 2 column 3 value 4",
    ],
)
def test_all_wordings_mean_the_same_move(action: str) -> None:
    assert read_action(action, 4) == (6, 4)


@pytest.mark.parametrize(
    "action", ["", "2,3", "2,3,4,1", "2;3;4", "23,4", "-2,3,4", "２,３,４", "2,3,4" * 1000, "place four"]
)
def test_other_texts_are_no_move(action: str) -> None:
    assert read_action(action, 4) is None


def test_random_play_solves_about_half_as_published() -> None:
    found = random_success("sudoku", 128, 4)
    assert found.mean() == pytest.approx(0.5, abs=0.08)


def test_impossible_numbers_of_clues_are_refused() -> None:
    with pytest.raises(OneiroError, match="clues must be from 4 to 15"):
        make("sudoku", clues=16)
