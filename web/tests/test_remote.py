"""Sites on another machine: reached by their addresses and no others, seen under public ones, graded as usual."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from oneiro_web.benchmarks.webarena import RemoteWeb
from oneiro_web.env import WebConfig, WebEnv
from oneiro_web.errors import WebError
from oneiro_web.sites import SITES, Web
from oneiro_web.sites.web import NOWHERE
from oneiro_web.urls import Places


class Machine(ThreadingHTTPServer):
    """Our forum behind a real port, with its own address in its pages."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.web, self.turn = Web(0), threading.Lock()
        self.asked: list[tuple[str, str]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Machine

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append((self.path, self.headers.get("referer", "")))
        headers = {key.lower(): value for key, value in self.headers.items()}
        with self.server.turn:
            reply = self.server.web.request(self.command, f"http://reddit.com{self.path}", headers, body)
        own = self.server.address.encode()
        body = reply.body.replace(b'href="/forums"', b'href="' + own + b'/forums"')
        self.send_response(reply.status)
        for key, value in reply.headers:
            if key != "content-length":
                self.send_header(key, value.replace("http://reddit.com", self.server.address))
        if self.path == "/":
            self.send_header("set-cookie", "seen=1; Domain=127.0.0.1; Secure; Path=/")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Machine() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_pages_come_under_public_addresses_and_nothing_else_is_asked(machine: Machine) -> None:
    web = RemoteWeb(Places({"reddit": machine.address}))
    reply = web.request("GET", "http://reddit.com/", {"referer": "http://reddit.com/forums", "host": "evil.test"})
    assert reply.status == 200
    assert b'href="http://reddit.com/forums"' in reply.body
    assert machine.address.encode() not in reply.body
    assert reply.header("set-cookie") == "seen=1; Path=/"
    assert machine.asked == [("/", f"{machine.address}/forums")]
    for url in (
        "http://onestopmarket.com/", "http://reddit.com:81/", "http://reddit.com@127.0.0.1/", machine.address,
        "http://169.254.169.254/", "file:///etc/passwd", "http://reddit.com.evil.test/",
    ):  # fmt: skip
        assert web.request("GET", url) is NOWHERE, url
    assert len(machine.asked) == 1


def test_pages_beside_the_public_path_of_a_site_are_its_own() -> None:
    web = RemoteWeb(Places({"shopping_admin": "http://127.0.0.1:7780/admin", "shopping": "http://127.0.0.1:7770"}))
    assert web.target("http://luma.com/admin/sales") == "http://127.0.0.1:7780/admin/sales"
    assert web.target("http://luma.com/static/a.css?v=1#x") == "http://127.0.0.1:7780/static/a.css?v=1"
    assert web.target("https://onestopmarket.com/a") == "http://127.0.0.1:7770/a"


def test_a_site_that_is_not_there_is_a_page_and_no_end() -> None:
    web = RemoteWeb(Places({"reddit": "http://127.0.0.1:9"}))
    assert web.request("GET", "http://reddit.com/").status == 502


def test_log_ins_come_from_storage_states(tmp_path: Path) -> None:
    web = RemoteWeb(Places({"reddit": "http://127.0.0.1:9"}), tmp_path)
    with pytest.raises(WebError, match=r"reddit_state\.json is missing"):
        web.sign_in(SITES["reddit"])
    path = tmp_path / "reddit_state.json"
    path.write_text(json.dumps({"cookies": [{"name": "a", "value": "b", "domain": "x"}]}))
    assert web.sign_in(SITES["reddit"]) == {"a": "b"}
    path.write_text("[]")
    with pytest.raises(WebError, match="no storage state"):
        web.sign_in(SITES["reddit"])


def test_a_task_file_is_played_and_graded_on_that_machine(machine: Machine, tmp_path: Path) -> None:
    task = {
        "task_id": 7, "sites": ["reddit"], "start_url": "__REDDIT__", "storage_state": None, "require_login": False,
        "intent": "Open the list of forums.", "intent_template": "", "instantiation_dict": {}, "intent_template_id": 1,
        "eval": {
            "eval_types": ["url_match"], "reference_answers": None, "reference_url": "__REDDIT__/forums",
            "program_html": [], "url_note": "GOLD in PRED",
        },
    }  # fmt: skip
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    world = WebEnv(WebConfig(task_file=str(tmp_path / "tasks.json"), base_urls={"reddit": machine.address}))
    first, info = world.reset(seed=0)
    assert "Open the list of forums." in first and info["template"] == 1
    number = next(line for line in first.splitlines() if "link 'Forums'" in line).split("]")[0].strip("\t[")
    observation = world.step(f"click [{number}]")[0]
    assert "URL: http://reddit.com/forums" in observation
    _, reward, done, _, told = world.step("stop []")
    assert (reward, done, told["success"]) == (1.0, True, True)
    world.reset(seed=0)
    assert world.step("stop []")[1] == 0.0
    world.close()
