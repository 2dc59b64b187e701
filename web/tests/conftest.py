"""What tests of the web share: one Chromium, and containers in the place of WebArena's."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
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


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """WebArena's sites by their names, as recorded pages; in `tmp_path` the storage state of a log-in at the shop."""
    from web.tests.containers import SITES, Container

    with ExitStack() as stack:
        servers = {site: stack.enter_context(Container(site)) for site in SITES}
        for server in servers.values():
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            stack.callback(server.shutdown)
        cookies = [{"name": "PHPSESSID", "value": "emma", "domain": "127.0.0.1", "path": "/"}]
        (tmp_path / "shopping_state.json").write_text(json.dumps({"cookies": cookies, "origins": []}))
        yield servers
