"""The board in Chromium: by pointer and by keyboard, on a screen and on a telephone, with hostile episodes."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from oneiro.board import server as board_server
from oneiro.board.server import make_app
from oneiro.models.language import LanguageModel
from oneiro.recipe import Recipe
from oneiro.report.table import Cell, Table
from oneiro.rundir.run import Run
from oneiro.runtime.files import write_json
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.grid import GridMetadata, GridPredictorConfig
from oneiro.tasks.webpage.model import WebPageMetadata
from oneiro.tasks.webpage.predictor import WebPagePredictorConfig
from oneiro.worlds.registry import WorldChoice

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine")
HOSTILE = "</pre><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202e\x1b[2J"
STATES = ["P _ _\n_ O _\n_ _ G", "_ P _\n_ O _\n_ _ G", "_ _ P\n_ O _\n_ _ G"]


def make_run(path: Path, word: str, gain: float = 0.0) -> None:
    table = Table("Success", ["agent", "success"], {"success": "%"}, note=word)
    table.add(word, Cell(0.5, 0.4, 0.6, 100))
    with Run.open(path, Recipe(system="toy", about=word)) as run:
        run.stage("rl", lambda: None)
        for step in range(1, 7):
            run.log("rl", step, {"success": step / 6})
        turns = [
            {"state": before, "prediction": STATES[0], "next_state": after, "reply": word, "actions": ["Right"]}
            for before, after in pairwise(STATES)
        ]
        episode = {"world": "frozen-lake", "finish_reason": word, "turns": turns}
        rows = [
            {**episode, "task": f"{word[:8]} {n // 4}", "seed": n // 4, "group": n // 4, "score": (n % 4) / 4 + gain}
            for n in range(12)
        ]
        for step in (2, 4, 6):
            run.episodes("rl", step, [{**row, "success": bool(row["score"])} for row in rows])
        candidates = [
            {"action": word, "value": 0.5, "predicted": STATES[1]},
            {"action": "Up", "value": 0, "predicted": word},
        ]
        decisions = [{"state": state, "next_state": word, "choice": word, "candidates": candidates} for state in STATES]
        write_json(path / "traces.json", {"traces": [{"label": word, "world": "frozen-lake", "turns": decisions}] * 2})
        run.summary({"tables": [table.data()]})
        run.finish()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(make_app([folder]), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "one", "word")
    make_run(folder / "other", "word", 0.25)
    make_run(folder / "hostile", HOSTILE)
    with served(folder) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Pages of a width; what their consoles complain about fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_at(width: int = 1280) -> Page:
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, accept_downloads=True))
        page = contexts[-1].new_page()
        page.set_default_timeout(300_000)  # a busy machine is no error
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert complaints == []


def test_from_a_curve_to_a_step_a_group_an_episode_and_a_turn(
    address: str, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    page = open_page()
    page.goto(address)
    page.click("text=other")
    figure = page.locator("svg.curve").first
    figure.hover(position={"x": 200, "y": 100})
    assert "step" in page.inner_text("#tip")
    figure.click(position={"x": 200, "y": 100})
    page.wait_for_url("**/step?run=other**")
    page.click(".histogram a >> nth=0")
    assert "bar=0" in page.url and page.locator(".square").count() == 3
    page.click(".square >> nth=1")
    assert page.inner_text("h1").startswith("Episode 4")
    page.wait_for_load_state()  # a page's heading is there before its pictures are
    assert page.locator(".replay .frame svg.world").count() == 3
    page.click("[data-do=play]")
    page.locator(".replay output", has_text="turn 2 of 2").wait_for()
    page.uncheck("[data-toggle=prediction]")
    assert "hide=prediction" in page.url and page.locator(".turn .p-prediction:visible").count() == 0
    page.reload()
    assert not page.is_checked("[data-toggle=prediction]")  # the address holds it
    with page.expect_download() as waiting:
        page.click("text=Save as a file")
    waiting.value.save_as(tmp_path / "saved.html")
    page.goto((tmp_path / "saved.html").as_uri())
    assert page.locator(".turn").count() == 2 and page.locator(".replay .frame svg").count() > 0


WIDTHS = pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.thorough)])
"""A telephone shows the least at once. `test_hostile_runs...` looks at the layout of every page at both."""


@WIDTHS
def test_everything_by_keyboard(address: str, open_page: Callable[..., Page], width: int) -> None:
    page = open_page(width)
    page.goto(address)
    page.keyboard.press("/")
    page.keyboard.type("one")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=one**")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run?run=one")
    page.locator("svg.curve").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url("**stage=rl&step=2")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/episode?**at=4")
    page.keyboard.press("j")
    page.wait_for_url("**at=5")
    page.keyboard.press("k")
    page.wait_for_url("**at=4")
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".replay output").startswith("turn 2 of 2")
    page.keyboard.press("Escape")
    page.wait_for_url("**/step?**")
    page.keyboard.press("Escape")
    page.wait_for_url("**/run?run=one")
    page.keyboard.press("Escape")
    page.wait_for_url(address)


@WIDTHS
def test_runs_are_ticked_and_compared_by_keyboard(address: str, open_page: Callable[..., Page], width: int) -> None:
    page = open_page(width)
    page.goto(address + "?q=o")
    runs = page.locator("input[name=run]").evaluate_all("boxes => boxes.map(box => box.value)")
    for name in runs:  # newest first, and these may have begun in the same second
        page.keyboard.press("j")
        if name in ("one", "other"):
            page.keyboard.press("x")
    page.keyboard.press("c")
    page.wait_for_url("**/compare?" + "&".join(f"run={name}" for name in runs if name in ("one", "other")))
    difference = page.locator(".paired tr:nth-child(2) td:nth-child(4) b")
    assert difference.inner_text() in ("0.25", "-0.25")
    assert "3 cases that both attempted" in page.inner_text("main")
    reach(page, "[name=one]")
    page.keyboard.type("one")  # a select goes to the entry that begins so
    reach(page, "[name=other]")
    page.keyboard.type("other")
    reach(page, "form button")
    page.keyboard.press("Enter")
    page.wait_for_url("**one=one%7Crl%7C6&other=other%7Crl%7C6")
    assert difference.inner_text() == "0.25"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/episode?run=other**")


def reach(page: Page, selector: str) -> None:
    """By Tab alone."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


@WIDTHS
def test_the_decisions_of_a_planner_are_walked_by_keyboard(
    address: str, open_page: Callable[..., Page], width: int
) -> None:
    page = open_page(width)
    page.goto(address + "run?run=one")
    reach(page, "a[href^=traces]")
    page.keyboard.press("Enter")
    page.wait_for_url("**/traces?run=one")
    for _ in range(4):
        page.keyboard.press("j")
    assert page.locator(".decision.at").get_attribute("id") == "decision-2-1"  # the first one has three
    assert page.locator(".decision.at").evaluate("one => Math.abs(one.getBoundingClientRect().top) < 40")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**#decision-1-3")
    page.keyboard.press("Escape")
    page.wait_for_url("**/run?run=one")


@pytest.mark.parametrize("width", [390, 1280])
def test_hostile_runs_are_inert_and_every_page_fits_its_width(
    address: str, open_page: Callable[..., Page], width: int
) -> None:
    page = open_page(width)
    episodes = [f"episode?run={name}&stage=rl&step=2&at=0" for name in ("hostile", "one")]
    runs = ["run?run=hostile", "step?run=hostile&stage=rl&step=2", "compare?run=hostile&run=one", "traces?run=hostile"]
    for path in ("", *runs, *episodes):
        page.goto(address + path)
        assert page.title().endswith("· Oneiro") and page.title() != "owned"
        assert page.locator("main script, main img, main iframe").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_page_follows_a_run_at_work(
    open_page: Callable[..., Page], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_server, "LIVE_S", 0.2)
    with Run.open(tmp_path / "live", Recipe(system="toy")) as run:
        run.say("at work")
        run.log("rl", 1, {"success": 0.25})
        with served(tmp_path) as url:
            page = open_page()
            page.goto(url)
            assert "step 1" in page.inner_text("main")
            run.log("rl", 2, {"success": 0.5})
            page.locator("main", has_text="step 2").wait_for()
            page.close()


def test_a_person_plays_with_the_arrow_keys(
    open_page: Callable[..., Page], tmp_path: Path, tiny: LanguageModel
) -> None:
    Run.open(tmp_path / "run", Recipe(system="toy")).close()
    task = GridPredictorConfig(world=WorldChoice(name="frozen-lake", view="spaced"))
    GridMetadata(task=task, sampling=SamplingSettings(max_tokens=4)).write(tiny)
    tiny.save(tmp_path / "run" / "checkpoints" / "world-model" / "model")
    with served(tmp_path) as url:
        page = open_page(390)
        page.goto(f"{url}run?run=run")
        page.click("text=Play frozen-lake")
        page.wait_for_url("**/play?run=run**")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowRight")  # before the first was answered: it waits for its turn
        page.locator(".history li >> nth=1").wait_for()
        assert page.url.endswith("&do=Up&do=Right")
        page.click("text=free")
        page.wait_for_url("**mode=free&do=Up&do=Right")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.keyboard.press("z")
        page.wait_for_url("**&do=Up")
        page.click("text=Save as an episode")
        page.wait_for_url("**/episode?run=run&stage=play&step=0&at=0")
        assert page.locator(".turn kbd").first.inner_text() == "Up"


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("metaworld") is None, reason="needs Meta-World (pip install oneiro[robot])")
def test_a_person_drives_the_robot_by_keyboard(
    open_page: Callable[..., Page], finished: Callable[[str, str], Path]
) -> None:
    run = finished("rlvr/video-single", "smoke")
    with served(run) as url:
        page = open_page(390)
        page.goto(f"{url}run?run={run.name}")
        reach(page, "a[href$='model=rl']")
        page.keyboard.press("Enter")
        page.wait_for_url("**/play?**", timeout=120_000)
        for key in ("d", "w", "."):
            page.keyboard.press(key)
        page.locator(".history li >> nth=2").wait_for()
        assert page.locator(".history li a").all_inner_texts() == ["x +", "y +", "wait"]
        assert page.locator(".side img.frame").count() == 2 and "dB" in page.inner_text(".side h2 span")
        page.keyboard.press("Backspace")  # Z closes the gripper
        page.locator(".history li >> nth=2").wait_for(state="detached")
        page.keyboard.press("Escape")
        page.wait_for_url("**/run?**")


def test_a_person_plays_on_web_pages_by_keyboard_alone(
    open_page: Callable[..., Page], tmp_path: Path, tiny: LanguageModel
) -> None:
    Run.open(tmp_path / "run", Recipe(system="toy")).close()
    WebPageMetadata(task=WebPagePredictorConfig(brief=True, lines=8), sampling=SamplingSettings(max_tokens=4)).write(
        tiny
    )
    tiny.save(tmp_path / "run" / "checkpoints" / "world-model" / "model")
    with served(tmp_path) as url:
        page = open_page(390)
        page.goto(f"{url}play?run=run&model=world-model&game=map&seed=1&frame=1")
        frame = page.frame_locator("iframe")
        frame.locator("a").first.wait_for()  # the true page is drawn
        assert page.locator("iframe").get_attribute("sandbox") == ""
        page.keyboard.press("/")
        page.keyboard.type("click [7]")
        page.keyboard.press("Enter")
        page.locator(".history li").wait_for()
        assert "do=click+%5B7%5D" in page.url and "frame=1" in page.url
        assert page.locator("iframe").count() == 1 and page.evaluate("document.documentElement.scrollWidth") <= 390
        page.keyboard.press("z")
        page.locator(".history").wait_for(state="detached")


@WIDTHS
def test_no_page_has_a_serious_fault_for_those_who_cannot_see_it(address: str, browser: Browser, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    page = browser.new_context(viewport={"width": width, "height": 800}, bypass_csp=True).new_page()
    paths = ["", "?status=silent", "run?run=one", "step?run=one&stage=rl&step=2", "compare?run=one&run=other"]
    for path in (*paths, "traces?run=one", "episode?run=one&stage=rl&step=2&at=0", "run?run=nothing"):
        page.goto(address + path)
        faults = axe.Axe().run(page).response["violations"]
        assert [fault["id"] for fault in faults if fault["impact"] in ("serious", "critical")] == [], path
    page.context.close()
