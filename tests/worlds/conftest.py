"""What tests of many worlds share: `oneiro check` without another process and with few levels."""

from __future__ import annotations

import json
import subprocess
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from oneiro.worlds import make


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check's other process is a call in this one: starting it takes a second, and one test does so for all."""
    module = import_module("oneiro.worlds.check")

    def run(command: list[str], *, input: str, **_: Any) -> subprocess.CompletedProcess[str]:
        question = json.loads(input)
        transcript = module.transcript(make(question["name"], **question["settings"]))
        return subprocess.CompletedProcess(command, 0, transcript, "")

    monkeypatch.setattr(module, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))


@pytest.fixture
def few_levels(one_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check plays a handful of levels."""
    module = import_module("oneiro.worlds.check")
    monkeypatch.setattr(module, "LEVELS", 6)
    monkeypatch.setattr(module, "MEMBERS", 2)
