"""The sites for a person: the list of sites, their hosts, and beginning again."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any
from urllib.request import urlopen

import pytest

from oneiro_web.errors import WebError
from oneiro_web.sites import SITES
from oneiro_web.sites.serve import Served, listen, serve


def ask(app: Served, host: str, path: str = "/", method: str = "GET", body: bytes = b"") -> tuple[int, str, str]:
    """Status, location and text of an answer."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", host.encode()), (b"content-type", b"application/x-www-form-urlencoded")]
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": headers, "scheme": "http", "server": ("127.0.0.1", 8000), "client": None, "http_version": "1.1",
        "asgi": {"version": "3.0"},
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    location = dict(sent[0]["headers"]).get(b"location", b"").decode()
    return sent[0]["status"], location, b"".join(part.get("body", b"") for part in sent[1:]).decode()


def test_the_first_page_leads_to_every_site_and_names_its_account() -> None:
    app = Served()
    status, _, page = ask(app, "localhost:8000")
    assert status == 200
    for site in SITES.values():
        assert f'href="http://{site.name.replace("_", "-")}.localhost:8000{site.home}"' in page
        assert site.account is None or site.account[1] in page
        assert ask(app, f"{site.name.replace('_', '-')}.localhost:8000", site.home)[0] in (200, 303)


def test_the_accounts_log_in() -> None:
    app = Served()
    forms = {
        "shopping": ("/customer/account/login", "email"),
        "shopping_admin": ("/admin/auth/login", "username"),
        "reddit": ("/login", "username"),
        "gitlab": ("/users/sign_in", "username"),
    }
    for name, (path, field) in forms.items():
        account = SITES[name].account
        assert account is not None
        host = f"{name.replace('_', '-')}.localhost:8000"
        right = f"{field}={account[0].replace('@', '%40')}&password={account[1]}".encode()
        assert ask(app, host, path, "POST", right)[0] == 303, name
        assert ask(app, host, path, "POST", right + b"x")[0] != 303, name


def test_all_visitors_share_one_web_until_it_begins_again() -> None:
    app = Served(content=2)
    before = app.web.database(SITES["reddit"])
    before.execute("DELETE FROM post")
    assert app.web.database(SITES["reddit"]).execute("SELECT count(*) FROM post").fetchone()[0] == 0
    assert ask(app, "localhost:8000", "/", "POST")[:2] == (303, "/")
    assert app.web.content == 2
    assert app.web.database(SITES["reddit"]).execute("SELECT count(*) FROM post").fetchone()[0] == 400


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(WebError) as error:
            listen(port)
    reason = f"cannot listen on 127.0.0.1:{port} (Address already in use); choose another --port"
    assert str(error.value) == reason
    assert listen(port).getsockname()[1] == port


def test_a_browser_that_asks_for_an_icon_gets_no_error_page() -> None:
    for host in ("localhost:8000", "shopping.localhost:8000"):
        assert ask(Served(), host, "/favicon.ico") == (204, "", "")


def test_the_sites_answer_on_the_port_that_was_taken() -> None:
    listening = listen(0)
    threading.Thread(target=serve, args=(listening,), daemon=True).start()
    with urlopen(f"http://127.0.0.1:{listening.getsockname()[1]}/", timeout=120) as answer:
        assert answer.status == 200 and b"shopping.localhost" in answer.read()
