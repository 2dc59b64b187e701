"""BrowserGym: tasks of our five sites as environments, `gymnasium.make("browsergym/oneiro.reddit", ...)`.

`register_sites()` makes one environment of each site, and one of all. The sites answer in this process: the browser's
requests never leave it, every episode has databases of its own, and the grader reads these and not the page.
"""

from __future__ import annotations

import html
from types import SimpleNamespace
from typing import Any

from browsergym.core.registration import register_task
from browsergym.core.task import AbstractBrowserTask

from oneiro_web.env import WebConfig, WebEnv
from oneiro_web.grading import evaluate
from oneiro_web.sites import SITES, Web

TO_USER, INFEASIBLE = "assistant", "infeasible"
"""Roles of the messages that end an episode: an answer, and that there is none."""


class WebTask(AbstractBrowserTask):
    """One task, drawn by the seed from a split."""

    def __init__(
        self, seed: int, sites: tuple[str, ...] = (), templates: tuple[str, ...] = (), split: str | None = None
    ) -> None:
        super().__init__(seed)
        self.slow_mo = 0
        drawing = WebEnv(WebConfig(sites=tuple(sites), templates=tuple(templates)))
        try:
            _, self.drawn = drawing.reset(seed=seed, options={"split": split})
            self.task = drawing.task
        finally:
            drawing.close()
        self.web: Web | None = None

    @classmethod
    def get_task_id(cls) -> str:
        return "oneiro"

    def setup(self, page: Any) -> tuple[str, dict[str, Any]]:
        web = self.web = Web(self.task.spec.content if self.task.spec else 0)
        for site in (SITES[name] for name in self.task.log_ins if name in SITES):
            cookies = [{"name": name, "value": value} for name, value in web.sign_in(site).items()]
            page.context.add_cookies([{**cookie, "url": f"http://{site.host}/"} for cookie in cookies])
        page.context.route("**/*", self._answer)
        page.goto(self.task.start_urls[0])
        return self.task.intent, {"key": self.drawn["key"], "template": self.drawn["template"]}

    def _answer(self, route: Any) -> None:
        """A request of the browser, answered by a site."""
        assert self.web is not None
        request = route.request
        body = request.post_data_buffer or b""
        reply = self.web.request(request.method, plain(request.url), request.all_headers(), body)
        headers = {name: value for name, value in reply.headers if name not in ("location", "content-length")}
        cookies = [value for name, value in reply.headers if name == "set-cookie"]
        if cookies:
            headers["set-cookie"] = "\n".join(cookies)  # as the protocol joins them
        if target := reply.header("location"):
            # Playwright sends what a redirect leads to past its routes: a page that goes there comes back to us.
            page = f"<meta http-equiv='refresh' content='0;url={html.escape(target, quote=True)}'>".encode()
            return route.fulfill(status=200, headers={**headers, "content-type": "text/html"}, body=page)
        return route.fulfill(status=reply.status, headers=headers, body=reply.body)

    def validate(self, page: Any, chat_messages: list[dict[str, Any]]) -> tuple[float, bool, str, dict[str, Any]]:
        """Graded once, when the agent has answered; an empty message does where nothing is asked."""
        last = chat_messages[-1] if chat_messages else {"role": ""}
        if last["role"] not in (TO_USER, INFEASIBLE) or self._greets(chat_messages):
            return 0.0, False, "", {}
        answer = "N/A" if last["role"] == INFEASIBLE else str(last["message"])
        result = evaluate(self.task, SimpleNamespace(url=plain(page.url)), answer, web=self.web)  # type: ignore[arg-type]
        return result.score, True, "", {"failed": [check.reason for check in result.checks if check.score < 1]}

    @staticmethod
    def _greets(messages: list[dict[str, Any]]) -> bool:
        """BrowserGym opens the chat with a greeting of the assistant, before the goal."""
        return all(message["role"] != "user" for message in messages)

    def teardown(self) -> None:
        if self.web is not None:
            self.web.close()


def plain(url: str) -> str:
    """The address as our sites know it: Chromium makes https of http wherever it can."""
    return url.replace("https://", "http://", 1) if url.startswith("https://") else url


def register_sites() -> list[str]:
    """Make the environments known to gymnasium; their names, for `gymnasium.make`."""
    names = []
    for name, sites in {"oneiro": (), **{f"oneiro.{site}": (site,) for site in sorted(SITES)}}.items():
        register_task(name, WebTask, default_task_kwargs={"sites": sites})
        names.append(f"browsergym/{name}")
    return names
