"""The text browser says what Chromium says, on a sample of page types; `oneiro web parity` asks for all of them."""

from __future__ import annotations

import pytest

from oneiro_web.browsers.parity import compare, crawl, difference
from oneiro_web.browsers.text.browser import TextBrowser
from oneiro_web.sites import SITES, Web


def test_a_crawl_is_seeded_and_spreads_over_the_kinds_of_pages():
    first, again, other = (
        list(crawl(TextBrowser().open(Web(0), ["about:blank"]), seed, 30, list(SITES))) for seed in (1, 1, 2)
    )
    assert first == again != other
    kinds = {kind for _, kind in first}
    assert len(kinds) >= 20
    assert {kind.split()[0] for kind in kinds} == set(SITES)


def test_differences_are_counted_and_shown():
    found = difference("http://x/", "x", "head\n\n[1] a\n[2] b", "head\n\n[1] a\n[2] c")
    assert (found.lines, found.equal, found.differences[1:]) == (4, 3, ("-[2] b", "+[2] c"))


@pytest.mark.parametrize("pages", [5, pytest.param(60, marks=pytest.mark.thorough)])
def test_the_text_browser_says_what_chromium_says(chromium, pages):
    found = compare(TextBrowser(), chromium, pages=pages, seed=5)
    assert len(found.pages) == pages
    assert {page.url: page.differences for page in found.different} == {}
    assert found.equal_lines == found.lines > 30 * pages
