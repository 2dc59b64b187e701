"""How often the garbage collector looks while worlds are played."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from oneiro.runtime.collector import NEW_OBJECTS, collect_rarely, collecting_rarely


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_the_threshold_is_raised_only_while_something_is_played() -> None:
    with pytest.raises(ValueError, match="broke"), collecting_rarely():
        assert gc.get_threshold() == (NEW_OBJECTS, 10, 10)
        raise ValueError("it broke")
    assert gc.get_threshold() == (700, 10, 10)


def test_the_last_one_that_leaves_puts_the_threshold_back() -> None:
    first, second = collecting_rarely(), collecting_rarely()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == (NEW_OBJECTS, 10, 10)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (50_000, 5, 5)])
def test_a_process_that_has_chosen_its_own_threshold_is_left_alone(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    collect_rarely()
    assert gc.get_threshold() == own
