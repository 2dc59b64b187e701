"""Pages that are remembered over episodes: never an old one, never one of another past."""

from __future__ import annotations

import pytest

from oneiro_web.sites import SITES, Reply, Web
from oneiro_web.sites import web as web_module
from oneiro_web.sites.replies import Replies

SITE = SITES["reddit"]
HOME = f"http://{SITE.host}/"
SUBMIT = f"http://{SITE.host}/submit"
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(autouse=True)
def replies(monkeypatch: pytest.MonkeyPatch) -> Replies[Reply]:
    """Nothing is remembered when a test begins."""
    fresh: Replies[Reply] = Replies(100)
    monkeypatch.setattr(web_module, "REPLIES", fresh)
    return fresh


def signed_in(web: Web) -> dict[str, str]:
    return {"cookie": "; ".join(f"{name}={value}" for name, value in web.sign_in(SITE).items())}


def forum_of(web: Web) -> str:
    return str(web.database(SITE).execute("SELECT name FROM forum ORDER BY name").fetchone()[0])


def post(web: Web, headers: dict[str, str], title: str) -> Reply:
    body = f"title={title}&body=Text&forum={forum_of(web)}".encode()
    return web.request("POST", SUBMIT, {**headers, **FORM, "content-length": str(len(body))}, body)


def newest(web: Web, headers: dict[str, str]) -> str:
    return web.request("GET", f"{HOME}f/{forum_of(web)}/new", headers).body.decode()


def test_episodes_that_begin_alike_share_their_pages(replies: Replies[Reply]) -> None:
    one, other, elsewhere = Web(3), Web(3), Web(4)
    page = one.request("GET", HOME, signed_in(one))
    assert other.request("GET", HOME, signed_in(other)) is page
    assert elsewhere.request("GET", HOME, signed_in(elsewhere)).body != page.body
    assert one.request("GET", HOME).body != page.body  # nobody is logged in
    assert len(replies.kept) == 3


def test_a_change_is_seen_at_once_and_in_its_own_episode_only() -> None:
    one, other = Web(3), Web(3)
    mine, theirs = signed_in(one), signed_in(other)
    assert "OnlyHere" not in newest(one, mine)
    assert post(one, mine, "OnlyHere").status == 303
    first = newest(one, mine)
    assert "OnlyHere" in first
    assert "OnlyHere" not in newest(other, theirs)
    assert post(other, theirs, "OnlyHere").status == 303  # a request that writes is carried out every time
    assert other.database(SITE).execute("SELECT count(*) FROM post WHERE title = 'OnlyHere'").fetchone()[0] == 1
    assert newest(other, theirs) == first
    assert post(other, theirs, "Another").status == 303
    assert "Another" in newest(other, theirs) and "Another" not in newest(one, mine)


def test_a_page_that_writes_is_not_remembered() -> None:
    for web in (Web(3), Web(3)):
        headers = signed_in(web)
        assert post(web, headers, "Noted").status == 303
        pages = [web.request("GET", HOME, headers).body for _ in range(3)]
        assert pages[0] != pages[1]  # the first one shows a note, once
        assert pages[1] == pages[2]


def test_what_is_written_past_the_pages_is_seen() -> None:
    web, other = Web(3), Web(3)
    headers = signed_in(web)
    newest(web, headers)
    web.database(SITE).execute("UPDATE post SET title = 'Written past the pages'")
    assert "Written past the pages" in newest(web, headers)
    headers = signed_in(web)  # and nothing that follows explains it
    assert "Written past the pages" in newest(web, headers)
    other.sign_in(SITE)
    assert "Written past the pages" not in newest(other, signed_in(other))


def test_the_reply_that_nobody_asked_for_longest_is_forgotten() -> None:
    kept: Replies[str] = Replies(2)
    kept.keep("a", "A")
    kept.keep("b", "B")
    assert kept.get("a") == "A"
    kept.keep("c", "C")
    assert [kept.get(key) for key in "abc"] == ["A", None, "C"]
