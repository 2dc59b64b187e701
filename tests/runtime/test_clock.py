"""Seconds counted once, under the name nearest to where they were spent."""

from __future__ import annotations

import threading
import time

import pytest

from oneiro.runtime import clock
from oneiro.runtime.clock import spent


def test_what_is_spent_within_counts_for_the_name_within() -> None:
    clock.read()
    with spent("worlds"):
        time.sleep(0.02)
        for _ in range(2):
            with spent("sampling"):
                time.sleep(0.03)
    found = clock.read()
    assert set(found) == {"worlds", "sampling"}
    assert 0.06 <= found["sampling"] < 0.5 and 0.02 <= found["worlds"] < 0.5


def test_a_thread_has_a_clock_of_its_own() -> None:
    clock.read()

    def work() -> None:
        with spent("worlds"):
            time.sleep(0.05)

    beside = threading.Thread(target=work)
    with spent("learning"):
        beside.start()
        time.sleep(0.05)
    beside.join()
    found = clock.read()
    assert set(found) == {"learning"} and found["learning"] >= 0.05


def test_seconds_count_though_the_work_failed_and_a_reading_starts_anew() -> None:
    clock.read()
    with pytest.raises(ValueError), spent("scoring"):
        raise ValueError
    assert clock.read()["scoring"] > 0
    assert clock.read() == {}
