"""Nothing a model writes can break or slow down a world: 100,000 replies, random and hostile, through every parser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from oneiro.worlds import make
from oneiro.worlds.grid.sudoku.world import read_action
from oneiro.worlds.puzzle.countdown import parse
from oneiro.worlds.puzzle.math_qa import right
from oneiro.worlds.robot.drawer import read_action as read_movement

REPLIES = 100_000
SLOWEST = 5.0
"""Seconds; what is not linear takes minutes, and a slow machine must not fail."""
"""Seconds for one reply: far above any honest parser, far below a pattern that backtracks."""

SEEDS = (
    *("Up", "left", "R'", "1,2,3", "place 4 at row 2 col 3", "(3, 4) = 2", "search[red shoes]", "click[Buy Now]"),
    *("(3 + 5) * 2 = 16", "The answer is: 1,234.5", r"\boxed{\frac{1}{2}}", "Player (1,2); no holes; goal at (2,0)."),
    *("P_O\n_OG\n___", "# # #\n# P #\n# # #", "| 1 2 3 4 | . . . . ", "2 . 4\n. . .\n8 . .", "U WW WW\nL OO OO"),
    *("Target: 5, numbers: 1, 2, 3", "Empty positions to be filled are at (1,2), (1,4)."),
)
PIECES = (
    *"0123456789+-*/()[]{}.,;:=|#_XOPGS√ \n\t'\"$%^&~",
    *(
        "\\frac{",
        "\\boxed{",
        "answer is ",
        "click[",
        "search[",
        "row ",
        "col ",
        "place ",
        "||",
        "</answer>",
        "√",
        "\x00",
        "\ud800",
    ),
    *("\u202e", "½", "٣", "²", "Ⅷ", "  ", "\u00a0", "\N{SNOWMAN}", "e9", "1e999", "NaN", "inf", "0x1F", "1_000"),
)
HOSTILE = (
    *("(" * 20_000, "1" * 20_000, "-" * 20_000, "1+" * 10_000, "9*" * 140 + "9", "1/" * 140 + "3", "[" * 10_000),
    *(
        "\\boxed{" * 5_000,
        "{" * 20_000,
        "answer is " * 5_000,
        "1," * 10_000,
        "1,000" * 4_000,
        "$ " * 10_000,
        "\n" * 20_000,
    ),
    *(
        "P" * 20_000,
        "_ " * 10_000,
        "(0,0) and " * 3_000,
        "1 . " * 8_000,
        "search[" + "a " * 10_000 + "]",
        "click[" + "[" * 9_000,
    ),
    *(
        "Player (1,2); holes at " + "(0,1), " * 4_000 + "; goal at (1,1).",
        "2 " * 10_000,
        " " * 20_000 + "Up",
        "Up" + " " * 20_000,
    ),
)


def replies(count: int) -> Iterator[str]:
    """Hostile strings, random strings, and known ones with pieces put in, taken out and repeated."""
    rng = np.random.default_rng(0)
    yield from HOSTILE
    pieces = np.array(PIECES, object)
    lengths = rng.integers(0, 25, count)
    kinds = rng.random(count)
    for length, kind in zip(lengths.tolist(), kinds.tolist(), strict=True):
        if kind < 0.4:
            yield "".join(pieces[rng.integers(len(pieces), size=length)])
            continue
        text = SEEDS[int(rng.integers(len(SEEDS)))]
        at, end = sorted(rng.integers(0, len(text) + 1, 2).tolist())
        if kind < 0.6:
            yield text[:at] + str(pieces[int(rng.integers(len(pieces)))]) + text[at:]
        elif kind < 0.8:
            yield text[:at] + text[end:]
        else:
            yield text[:end] + text[at:] * (1 + length % 4)


def readers() -> dict[str, Callable[[str], object]]:
    """Every function that reads what a model wrote."""
    found: dict[str, Callable[[str], object]] = {
        "expression": parse,
        "number label": lambda text: right(text, "1/2"),
        "text label": lambda text: right(text, "x + 1"),
        "sudoku action": lambda text: read_action(text, 9),
        "robot action": read_movement,
    }
    for name in ("frozen-lake", "sokoban", "sudoku", "2048", "cube", "countdown"):
        world = make(name)
        world.reset(seed=0)
        for view in world.views:
            found[f"{name} {view}"] = lambda text, world=world, view=view: world.parse(text, view)
    return found


@pytest.mark.parametrize("count", [3000, pytest.param(REPLIES, marks=pytest.mark.thorough)])
def test_no_reply_breaks_or_slows_a_parser(count: int) -> None:
    parsers = list(readers().items())
    for text in replies(count):
        started = time.process_time()
        for name, read in parsers:
            try:
                read(text)
            except Exception as error:
                pytest.fail(f"{name} raised {error!r} on {text[:80]!r}")
        assert time.process_time() - started < SLOWEST, f"slow on {text[:80]!r}"


STEPPED = (
    *("frozen-lake", "sokoban", "sudoku", "countdown", "math", "bandit", "2048", "cube", "webshop", "textgame"),
    *("sokoban:action-vocab", "sudoku:9x9"),
)
"""Worlds whose `step` reads what a model wrote; the robot's reader is among `readers`."""


def steps_through(name: str, count: int) -> None:
    """Every reply is an action that ends in the five-tuple, soon."""
    world = make(name, max_actions=50)
    world.reset(seed=0)
    for number, text in enumerate(replies(count)):
        started = time.process_time()
        try:
            observation, reward, terminated, truncated, info = world.step(text)
        except Exception as error:
            pytest.fail(f"{name} raised {error!r} on {text[:80]!r}")
        assert time.process_time() - started < SLOWEST, f"{name} is slow on {text[:80]!r}"
        assert isinstance(observation, str) and isinstance(reward, float)
        assert {"valid", "effective", "success"} <= info.keys()
        if terminated or truncated:
            world.reset(seed=number % 500)


@pytest.mark.parametrize("name", STEPPED)
def test_no_reply_breaks_or_slows_a_world(name: str) -> None:
    steps_through(name, 1500)


@pytest.mark.thorough
@pytest.mark.parametrize("name", STEPPED)
def test_a_hundred_thousand_replies_break_or_slow_no_world(name: str) -> None:
    steps_through(name, REPLIES)
