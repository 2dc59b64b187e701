"""What tests of the web share: one Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, and no limit in seconds: a busy machine is no error.
settings.register_profile("oneiro", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("oneiro")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One Chromium for all tests, which worlds take for the browser of the process too. Starting one takes a second or
    two. It is patient: pages that answer have all the time that a busy machine may need.
    """
    if shutil.which("chromium") is None:
        pytest.skip("needs Chromium (apt install chromium)")
    module = pytest.importorskip(
        "oneiro_web.browsers.chromium.browser", reason="needs Playwright (pip install oneiro[web])"
    )
    from oneiro_web import browsing
    from oneiro_web.browsers.base import Limits

    with module.ChromiumBrowser(Limits(seconds=60.0)) as browser, pytest.MonkeyPatch.context() as patch:
        patch.setitem(browsing._STARTED, ("chromium", False), browser)
        yield browser
