"""What robot tests need: the simulator's packages, and a library that draws."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.robot.simulator import DrawerSimulator


@pytest.fixture(scope="session")
def simulator() -> Iterator[DrawerSimulator]:
    """A drawer to open, that can be seen; one for all tests, each resets it."""
    try:
        made = DrawerSimulator("drawer-open")
        made.reset(0.0)
        made.frame()
    except OneiroError as error:
        pytest.skip(str(error))
    yield made
    made.close()
