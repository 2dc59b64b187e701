"""webarena-infinity: its single-page applications and tasks, from a local clone, without its servers.

    for task in tasks(Path("webarena-infinity"), ("gmail",)):
        web = Infinity(task.folder)

Its own server has one state for all, takes whatever state a page sends, and serves the tasks and their verifiers to the
agent. Here every episode has a web of its own, which serves what a page needs and nothing else. The state is what the
application sent last; the browser cannot read it back, and an agent, who has no scripts, cannot send one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from oneiro_web.errors import WebError, nearest
from oneiro_web.sites.web import NOWHERE, Reply, Web

SERVED = {
    ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png", ".gif": "image/gif",
    ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".ico": "image/x-icon",
    ".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf",
}  # fmt: skip
"""Files that a page may ask for; tasks, verifiers and notes are none of them."""
STATE, EVENTS = "/api/state", "/api/events"
MISSING = Reply(404, (("content-type", "text/plain"),), b"Not found")
TAKEN = Reply(200, (("content-type", "application/json"),), b'{"status": "ok"}')
NO_EVENTS = Reply(204, (), b"")
"""Nobody resets an episode's application; this answer ends the page's waiting for it."""
VERIFIER_SECONDS = 20.0
LARGEST_FILE = 16 << 20

Suite = Literal["real-tasks", "function-tasks"]


class InfinityTask(BaseModel):
    """One task of an application's list."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    instruction: str
    verify: str
    """The verifier's file, relative to the application's folder."""
    difficulty: str = ""
    folder: Path = Path()
    """Where the application lies; its name is the folder's."""

    @property
    def app(self) -> str:
        """The application's name."""
        return self.folder.name


_TASKS = TypeAdapter(tuple[InfinityTask, ...])


@cache
def applications(clone: Path) -> tuple[str, ...]:
    """The applications of a clone that have tasks."""
    names = sorted(file.parent.name for file in clone.glob("apps/*/real-tasks.json"))
    if not names:
        raise WebError(
            f"no applications in {clone / 'apps'}; clone https://github.com/web-arena-x/webarena-infinity and set "
            "clone=FOLDER"
        )
    return tuple(names)


@cache
def tasks(clone: Path, apps: Sequence[str] = (), suite: Suite = "real-tasks") -> tuple[InfinityTask, ...]:
    """The tasks of these applications, or of all."""
    known = applications(clone)
    for app in apps:
        if app not in known:
            raise WebError(f"webarena-infinity has no application '{app}'{nearest(app, known)}")
    listed_tasks: list[InfinityTask] = []
    for app in apps or known:
        folder = clone / "apps" / app
        file = folder / f"{suite}.json"
        try:
            listed = _TASKS.validate_json(file.read_bytes())
        except OSError as error:
            raise WebError(f"{file}: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors()[0]
            raise WebError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        listed_tasks += [task.model_copy(update={"folder": folder}) for task in listed]
    return tuple(listed_tasks)


class Infinity(Web):
    """The web of one episode: one application, as it begins."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self.host = f"{folder.name}.localhost"
        self.first: Any = None
        """The state that the page sent first, before anybody acted."""
        self.state: Any = None

    @property
    def url(self) -> str:
        """The address of the application."""
        return f"http://{self.host}/"

    @property
    def changed(self) -> bool:
        """Whether the application's state is another than at the start."""
        return self.state != self.first

    def request(self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.netloc != self.host:
            return NOWHERE
        if method == "PUT" and parts.path == STATE:
            return self._take(body)
        if method not in ("GET", "HEAD"):
            return MISSING
        if parts.path == EVENTS:
            return NO_EVENTS
        return self._file("index.html" if parts.path == "/" else unquote(parts.path).lstrip("/"))

    def _take(self, body: bytes) -> Reply:
        try:
            state = json.loads(body)
        except (ValueError, RecursionError):
            return Reply(400, (), b"")
        if self.first is None:
            self.first = state
        self.state = state
        return TAKEN

    def _file(self, name: str) -> Reply:
        file = (self.folder / name).resolve()
        kind = "text/html; charset=utf-8" if name == "index.html" else SERVED.get(file.suffix.lower())
        if kind is None or not file.is_relative_to(self.folder) or not file.is_file():
            return MISSING
        if file.stat().st_size > LARGEST_FILE:
            return MISSING
        return Reply(200, (("content-type", kind),), file.read_bytes())


def verify(task: InfinityTask, web: Infinity) -> tuple[bool, str]:
    """What the task's verifier says of the state, and why. An application that nobody changed solves no task.

    The verifier is a program of the clone: it runs in a process of its own, with the state for its only reply.
    """
    if web.state is None:
        return False, "the application sent no state"
    if not web.changed:
        return False, "nothing was changed"
    file = (task.folder / task.verify).resolve()
    if not file.is_relative_to(task.folder.resolve()) or not file.is_file():
        raise WebError(f"{task.app}, {task.id}: its verifier {task.verify} is not in the clone")
    command = [sys.executable, "-I", str(Path(__file__).with_name("verifier.py")), str(file)]
    try:
        done = subprocess.run(
            command, input=json.dumps(web.state).encode(), capture_output=True, timeout=VERIFIER_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False, f"the verifier took more than {VERIFIER_SECONDS:g} seconds"
    if done.returncode:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return False, f"the verifier failed: {errors[-1] if errors else done.returncode}"
    passed, why = json.loads(done.stdout.decode().splitlines()[-1])
    return bool(passed), str(why)
