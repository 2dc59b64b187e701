"""Lightpanda: the same actions give what the text browser gives, scripts run, and a page that hangs costs its tab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oneiro.worlds.web.browser.base import Limits
from tests.worlds.web.test_chromium import (  # noqa: F401
    open_page,
    test_a_form_sends_what_was_typed_ticked_and_chosen,
    test_cookies_and_sessions_do_not_meet,
    test_graders_look_without_leaving_a_trace,
    test_nothing_passes_the_proxy,
    test_scripts_dialogs_and_downloads,
    test_simplified_html_and_its_ids,
    test_trees_are_those_of_the_text_browser,
    test_typing_tabs_history_and_failures_are_those_of_the_text_browser,
)

lightpanda = pytest.importorskip("oneiro.worlds.web.browser.lightpanda", reason="needs oneiro[web]")
pytest.importorskip("lightpanda", reason="needs oneiro[lightpanda]")


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with lightpanda.LightpandaBrowser(Limits(seconds=4.0)) as started:
        yield started
