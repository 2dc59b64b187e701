"""A web of test pages under any host."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oneiro_web.sites import Web
from oneiro_web.sites.web import NOWHERE, Reply

Answer = str | Reply | Callable[[str, str, bytes], "str | Reply"]


def html(text: str, status: int = 200, **headers: str) -> Reply:
    """An HTML answer."""
    extra = tuple((key.replace("_", "-"), value) for key, value in headers.items())
    return Reply(status, (("content-type", "text/html; charset=utf-8"), *extra), text.encode())


def redirect(target: str, status: int = 303) -> Reply:
    """An answer that sends on."""
    return Reply(status, (("location", target),), b"")


class Pages(Web):
    """Answers by address; everything else is outside. `asked` keeps method, address, cookies and body in order."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[tuple[str, str, str, bytes]] = []

    def request(self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        self.asked.append((method, url, (headers or {}).get("cookie", ""), body))
        answer = self.answers.get(url.split("?")[0])
        if callable(answer):
            answer = answer(method, url, body)
        if answer is None:
            return NOWHERE
        return html(answer) if isinstance(answer, str) else answer


def one(body: str, title: str = "Page") -> Pages:
    """A single page at http://here.test/ that answers everything else there with what was asked."""

    def echo(method: str, url: str, sent: bytes) -> str:
        return f"<title>Sent</title><p>{method} {url.partition('?')[2]} {sent.decode()}</p>"

    return Pages({"http://here.test/": f"<!doctype html><title>{title}</title>{body}", "http://here.test/to": echo})
