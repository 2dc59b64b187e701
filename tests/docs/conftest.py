"""Finished runs for the pages: one smoke run of each recipe that a page uses, shared by all workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneiro.worlds import registry


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of finished runs; `tests.docs.pages.finished_run` fills it."""
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "docs-runs"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page registers is gone after it."""
    monkeypatch.setattr(registry, "WORLDS", dict(registry.WORLDS))
