"""Addresses: which may be opened, and how public and local ones map."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneiro_web.errors import WebError
from oneiro_web.urls import PUBLIC, Places, admitted

HOSTS = {"reddit.com", "luma.com", "127.0.0.1:7770"}
LOCAL = Places(
    {
        "shopping": "http://127.0.0.1:7770",
        "shopping_admin": "http://127.0.0.1:7780/admin",
        "reddit": "http://forum.localhost:9999/",
    }
)


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("http://reddit.com", "http://reddit.com/"),
        ("https://REDDIT.com/f/a?b=c#d", "https://reddit.com/f/a?b=c#d"),
        ("http://reddit.com.:80/", "http://reddit.com/"),
        ("http://ｒeddit.com/", "http://reddit.com/"),
        (" http://reddit.com/x\n", "http://reddit.com/x"),
        ("http://reddit.com:/x:y@z", "http://reddit.com/x:y@z"),
        ("http://127.0.0.1:7770/a", "http://127.0.0.1:7770/a"),
    ],
)
def test_addresses_at_known_hosts_are_admitted_and_written_plainly(url: str, plain: str) -> None:
    assert admitted(url, HOSTS) == plain


@pytest.mark.parametrize(
    "url",
    [
        "",
        "reddit.com",
        "file:///etc/hostname",
        "javascript:alert(1)",
        "data:text/html,x",
        "about:blank",
        "ftp://reddit.com/",
        "http://evil.com/",
        "http://reddit.com.evil.com/",
        "http://evilreddit.com/",
        "http://evil.com/?u=http://reddit.com",
        "http://reddit.com@evil.com/",
        "http://user:pw@reddit.com/",
        "http://reddit.com:9222/",
        "http://reddit.com:80:80/",
        "http://127.0.0.1/",
        "http://127.0.0.1:7771/",
        "http://2130706433:7770/",
        "http://0x7f.1:7770/",
        "http://[::1]:7770/",
        "http:\\\\reddit.com\\",
        "http://evil.com\\@reddit.com/",
        "http://reddit.com\\.evil.com/",
        "http:///reddit.com/",
        "http:reddit.com",
        "//reddit.com/",
        "http://reddit%2ecom/",
        "http://red\tdit.com/",
        "ws://reddit.com/",
        "view-source:http://reddit.com/",
        "blob:http://reddit.com/x",
        "http://rеddit.com/",
        "http://reddit.com..:80/",
        "http://.reddit.com/",
        "http://www.reddit.com/",
        "http://reddit.com\u2044evil.com/",
        "http://" + "a" * 9000,
    ],
)
def test_other_addresses_are_not(url: str) -> None:
    assert admitted(url, HOSTS) is None


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60) | st.from_regex(r"https?:/?/?[a-z@:.\\\\%/\[\]0-9]{0,20}reddit\.com[a-z@:.\\\\%/]{0,20}"))
def test_no_text_raises_and_what_is_admitted_stays_admitted(url: str) -> None:
    plain = admitted(url, HOSTS)
    assert plain is None or admitted(plain, HOSTS) == plain


@pytest.mark.parametrize(
    ("local", "public"),
    [
        ("http://127.0.0.1:7770", "http://onestopmarket.com"),
        ("http://127.0.0.1:7770/a?b=c#d", "http://onestopmarket.com/a?b=c#d"),
        ("http://127.0.0.1:7780/admin/sales", "http://luma.com/admin/sales"),
        ("http://forum.localhost:9999/f/books", "http://reddit.com/f/books"),
    ],
)
def test_addresses_map_both_ways(local: str, public: str) -> None:
    assert LOCAL.public(local) == public
    assert LOCAL.local(public) == LOCAL.local(public.replace("http:", "https:")) == local
    assert LOCAL.site(local) == LOCAL.site(public) is not None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:7780/administrator",
        "http://127.0.0.1:77700/",
        "http://a.com/?next=http://127.0.0.1:7770/x",
        "nonsense",
    ],
)
def test_only_whole_hosts_and_paths_are_mapped(url: str) -> None:
    assert LOCAL.public(url) == url
    assert LOCAL.site(url) is None


def test_a_public_address_inside_a_query_stays() -> None:
    url = "http://127.0.0.1:7770/go?to=http://reddit.com/f"
    assert LOCAL.local(url) == url
    assert LOCAL.public(url) == "http://onestopmarket.com/go?to=http://reddit.com/f"


def test_our_own_sites_are_served_under_their_public_addresses() -> None:
    own = Places()
    assert own.local("https://reddit.com/f/a") == "http://reddit.com/f/a"
    assert own.site("http://luma.com/admin?x=1") == "shopping_admin"
    assert own.site("http://luma.com/shop") is None
    assert own.hosts >= {"reddit.com", "luma.com"}
    assert all(admitted(url, own.hosts) for url in PUBLIC.values())


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(WebError, match="reddit: 'localhost:9999' is no web address"):
        Places({"reddit": "localhost:9999"})
