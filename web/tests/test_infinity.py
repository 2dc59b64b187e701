"""webarena-infinity from a clone: each episode has its own application; verifiers read what the application sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oneiro_web.benchmarks.infinity import tasks as infinity
from oneiro_web.benchmarks.infinity.env import InfinityConfig, InfinityEnv
from oneiro_web.benchmarks.infinity.tasks import Infinity, InfinityTask, applications, tasks, verify
from oneiro_web.errors import WebError

PAGE = """<!doctype html><title>Notes</title><p id="said">none</p>
<button id="one">Pin</button><button id="two">Archive</button><script src="js/app.js"></script>"""
SCRIPT = """
const state = {pinned: false, archived: false};
const send = () => fetch('/api/state', {method: 'PUT', body: JSON.stringify(state)});
document.getElementById('one').onclick = () => { state.pinned = true; send(); };
document.getElementById('two').onclick = () => { state.archived = true; send(); };
new EventSource('/api/events');
send();
"""
VERIFIER = """
import requests

def verify(server_url: str) -> tuple[bool, str]:
    resp = requests.get(f"{server_url}/api/state", timeout=5)
    assert resp.status_code == 200
    return resp.json()["pinned"], "the note is pinned or not"
"""
TASKS = [
    {"id": "task_e1", "difficulty": "easy", "instruction": "Pin the note.", "verify": "real-tasks/task_e1.py"},
    {"id": "task_h1", "difficulty": "hard", "instruction": "Never mind.", "verify": "real-tasks/task_h1.py"},
]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with one application in the project's layout."""
    app = tmp_path / "apps" / "notes"
    for name, text in {
        "index.html": PAGE, "js/app.js": SCRIPT, "server.py": "", "real-tasks.json": json.dumps(TASKS),
        "real-tasks/task_e1.py": VERIFIER, "real-tasks/task_h1.py": "def verify(url):\n    return undefined, ''\n",
    }.items():  # fmt: skip
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text(text)
    (tmp_path / "secret.js").write_text("")
    return tmp_path


def put(web: Infinity, state: object) -> None:
    web.request("PUT", f"{web.url}api/state", {}, json.dumps(state).encode())


def test_tasks_are_read_from_the_clone(clone: Path) -> None:
    assert applications(clone) == ("notes",)
    found = tasks(clone)
    assert [(task.app, task.id, task.difficulty) for task in found] == [
        ("notes", "task_e1", "easy"),
        ("notes", "task_h1", "hard"),
    ]


def test_a_wrong_clone_or_application_or_list_is_one_clear_line(clone: Path) -> None:
    with pytest.raises(WebError, match=r"no applications in .*; clone https"):
        InfinityEnv(InfinityConfig(clone=str(clone / "apps"))).reset(seed=0)
    with pytest.raises(WebError, match="no application 'nots'; did you mean 'notes'"):
        tasks(clone, ("nots",))
    with pytest.raises(WebError, match=r"function-tasks.json: No such file"):
        tasks(clone, suite="function-tasks")
    (clone / "apps/notes/function-tasks.json").write_text('[{"id": "task_1", "instruction": "Pin."}]')
    with pytest.raises(WebError, match=r"function-tasks.json: 0.verify: Field required"):
        tasks(clone, suite="function-tasks")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "", 200), ("GET", "index.html", 200), ("GET", "js/app.js", 200), ("GET", "api/events", 204),
     ("GET", "api/state", 404), ("POST", "api/reset", 404), ("GET", "server.py", 404),
     ("GET", "real-tasks.json", 404), ("GET", "real-tasks/task_e1.py", 404), ("GET", "js", 404),
     ("GET", "../../secret.js", 404), ("GET", "%2e%2e/%2e%2e/secret.js", 404), ("GET", "/etc/hostname", 404)],
)  # fmt: skip
def test_the_browser_gets_what_the_page_needs_and_nothing_else(
    clone: Path, method: str, path: str, status: int
) -> None:
    web = Infinity(clone / "apps" / "notes")
    assert web.request(method, web.url + path).status == status
    assert web.request(method, f"http://gmail.localhost/{path}").status == 403


def test_the_verifier_reads_the_state_that_the_application_sent_last(clone: Path) -> None:
    task, broken = tasks(clone)
    web = Infinity(task.folder)
    assert verify(task, web) == (False, "the application sent no state")
    assert web.request("PUT", f"{web.url}api/state", {}, b"{").status == 400
    put(web, {"pinned": True})
    assert verify(task, web) == (False, "nothing was changed"), "even where the first state would do"
    put(web, {"pinned": False, "moved": 1})
    assert verify(task, web) == (False, "the note is pinned or not")
    put(web, {"pinned": True, "moved": 1})
    assert verify(task, web) == (True, "the note is pinned or not")
    assert Infinity(task.folder).state is None, "another episode has a state of its own"
    passed, why = verify(broken, web)
    assert not passed and why == "the verifier failed: NameError: name 'undefined' is not defined"


def test_verifiers_are_files_of_the_application_and_end(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = clone / "apps" / "notes"
    web = Infinity(folder)
    put(web, {})
    put(web, {"pinned": True})
    outside = InfinityTask(id="task_e2", instruction="", verify="../../secret.js", folder=folder)
    with pytest.raises(WebError, match=r"verifier ../../secret.js is not in the clone"):
        verify(outside, web)
    (folder / "real-tasks/task_h1.py").write_text("while True: pass")
    monkeypatch.setattr(infinity, "VERIFIER_SECONDS", 0.5)
    assert verify(tasks(clone)[1], web) == (False, "the verifier took more than 0.5 seconds")


@pytest.mark.usefixtures("chromium")
def test_a_task_is_solved_by_the_page_and_not_by_stopping(clone: Path) -> None:
    world = InfinityEnv(InfinityConfig(difficulty=("easy",), clone=str(clone), max_actions=2))
    shown, info = world.reset(seed=0)
    assert "Task: Pin the note." in shown and info["task"] == "task_e1"
    assert world.step("stop []")[1] == 0.0
    for name, reward in (("Archive", 0.0), ("Pin", 1.0)):
        shown, _ = world.reset(seed=0)
        number = next(line.split("]")[0].split("[")[1] for line in shown.splitlines() if f"button '{name}'" in line)
        world.step(f"click [{number}]")
        _, found, _, truncated, after = world.step("none")
        assert (found, truncated, after["success"]) == (reward, True, reward == 1.0)
    world.close()
