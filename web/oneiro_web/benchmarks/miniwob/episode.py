"""MiniWoB++: the 130 pages of the PyPI package `miniwob`, played in a browser that runs scripts.

    with ChromiumBrowser() as browser, Episode(browser, "click-test", seed=0) as episode:
        page = episode.session.observe()
        outcome = episode.act(parse_webarena("click [4]"))
        episode.reward, episode.done

The pages are served to the session's browser as a web of their own. A small script starts the episode with its seed,
without clock and score board, and notes the reward in the document, where our side reads it after each action. An
episode is played once: a page that is loaded again starts nothing.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from oneiro_web.actions import Action
from oneiro_web.browsers.base import Browser, Outcome
from oneiro_web.errors import WebError, nearest
from oneiro_web.sites.web import NOWHERE, Reply, Web

HOST = "miniwob.localhost"
OVER = Reply(
    200, (("content-type", "text/html; charset=utf-8"),), b"<title>MiniWoB++</title><p>The episode was played already."
)
SCRIPT = """<script>
(function () {
  var begin = core.startEpisodeReal, end = core.endEpisode, begun = false;
  core.countdownTimer = function () {};
  core.startEpisode = function () {
    if (begun) return;
    begun = true;
    core.createDisplay();
    document.getElementById("reward-display").style.display = "none";
    core.cover_div = document.createElement("div");
    core.EPISODE_MAX_TIME = 86400000;
    Math.seedrandom(SEED);
    begin();
    var said = core.getUtterance();  // three tasks of the inbox wrap it with the values of its fields
    document.documentElement.setAttribute("data-wob-query", said.utterance === undefined ? said : said.utterance);
  };
  core.endEpisode = function () {
    end.apply(core, arguments);
    if (WOB_DONE_GLOBAL) document.documentElement.setAttribute("data-wob-reward", String(WOB_RAW_REWARD_GLOBAL));
  };
})();
</script>
</head>"""


@cache
def root() -> Path:
    """Where the package keeps its pages."""
    try:
        return Path(str(resources.files("miniwob"))) / "html"
    except ModuleNotFoundError:
        raise WebError("MiniWoB++ is not installed; install it with `pip install oneiro[web]`") from None


@cache
def task_names() -> tuple[str, ...]:
    """All tasks."""
    return tuple(sorted(file.stem for file in (root() / "miniwob").glob("*.html")))


class MiniWob(Web):
    """The web of one episode: the page of its task, once, and what the page needs."""

    def __init__(self, task: str, seed: int) -> None:
        super().__init__()
        if task not in task_names():
            raise WebError(f"MiniWoB++ has no task '{task}'{nearest(task, task_names())}")
        self.task, self.seed = task, seed
        self.played = False

    @property
    def url(self) -> str:
        """The address of the task."""
        return f"http://{HOST}/miniwob/{self.task}.html"

    def request(self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.netloc != HOST or method not in ("GET", "HEAD"):
            return NOWHERE
        if parts.path == f"/miniwob/{self.task}.html":
            if self.played:
                return OVER
            self.played = method == "GET"
            text = (root() / "miniwob" / f"{self.task}.html").read_text(encoding="utf-8")
            page = text.replace("</head>", SCRIPT.replace("SEED", json.dumps(f"oneiro {self.seed}")), 1)
            return Reply(200, (("content-type", "text/html; charset=utf-8"),), page.encode())
        file = (root() / unquote(parts.path).lstrip("/")).resolve()
        if not file.is_relative_to(root().resolve()) or file.suffix == ".html" or not file.is_file():
            return Reply(404, (("content-type", "text/plain"),), b"")
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return Reply(200, (("content-type", kind), ("cache-control", "max-age=86400")), file.read_bytes())


class Episode:
    """One task with one seed in a session of its own."""

    def __init__(self, browser: Browser, task: str, seed: int) -> None:
        self.web = MiniWob(task, seed)
        self.session = browser.open(self.web, [self.web.url])
        self.intent = self._noted("query")
        """What the task asks for."""
        if not self.intent:
            self.session.close()
            raise WebError(f"MiniWoB++ task '{task}' did not start; it needs a browser that runs scripts")
        self.reward = 0.0
        """From -1 to 1, as the page gave it, without a price for time."""
        self.done = False

    def act(self, action: Action) -> Outcome:
        """Carry out an action; `reward` and `done` are up to date afterwards."""
        outcome = self.session.act(action)
        noted = self._noted("reward") if not self.done else ""
        if noted:
            self.done, self.reward = True, min(1.0, max(-1.0, float(noted)))
        return outcome

    def _noted(self, what: str) -> str:
        return self.session.locate(f"document.documentElement.getAttribute('data-wob-{what}')")

    def close(self) -> None:
        """End the session."""
        self.session.close()

    def __enter__(self) -> Episode:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
