"""`oneiro bench web`: what it measures is there, and a peer that is missing is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import web
from bench.process import PEER_PYTHON
from oneiro.runtime.errors import OneiroError
from oneiro_web.browsers.text.browser import TextBrowser


def test_rates_and_resets_are_measured() -> None:
    with TextBrowser() as browser:
        assert web.site_rate(browser, 2, 0.05) > 0
        assert web.reset_time(browser, 0.05) > 0


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(PEER_PYTHON, raising=False)
    (said,) = web.browsergym(0.1).values()
    assert PEER_PYTHON in said and "browsergym" in said
    monkeypatch.setenv(PEER_PYTHON, str(tmp_path / "none"))
    with pytest.raises(OneiroError, match="cannot run"):
        web.browsergym(0.1)
