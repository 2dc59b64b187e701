"""Pages leave nothing behind."""

from __future__ import annotations

import pytest

from oneiro.worlds import registry


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page registers is gone after it."""
    monkeypatch.setattr(registry, "WORLDS", dict(registry.WORLDS))
