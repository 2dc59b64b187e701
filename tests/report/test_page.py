"""The page: whole, self-contained, and deaf to what models write."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from oneiro.recipe import Recipe
from oneiro.report import page
from oneiro.report.figures import save_gif
from oneiro.report.plots import Series, curves, nice_ticks, running_mean
from oneiro.report.table import Cell, Table
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError

HOSTILE = "</pre><script>alert('owned')</script><img src=x onerror=alert(1)>\x00${7*7}{{ 7*7 }}"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Outline(HTMLParser):
    """Which tags a page has, and whether they close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(text: str) -> Outline:
    parser = Outline()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


def make_run(path: Path, seed: int = 0, word: str = HOSTILE) -> Path:
    table = Table(f"Headline {word}", ["arm", "success"], {"success": "%"}, note=word)
    table.add(word, Cell(0.5, 0.4, 0.6, 100))
    with Run.open(path, Recipe(system="toy", about=word, seed=seed)) as run:
        run.stage("rl", lambda: None)
        for step in range(1, 60):
            run.log("rl", step, {"success": step / 60, "loss": 1 / step, f"odd {word}": 1.0})
        turn = {"state": word, "observation": word, "prediction": "x" + word, "next_state": word, "reply": word}
        run.episodes(
            "rl", 1, [{"world": word, "task": word, "finish_reason": word, "turns": [{**turn, "actions": [word]}]}]
        )
        curve = {"title": "Success", "key": "success", "unit": "%", "stages": {word: "rl"}}
        run.summary({"tables": [table.data()], "curves": [curve], "notes": [word]})
    return path


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose words are harmless, with its page."""
    run = make_run(tmp_path_factory.mktemp("runs") / "lake", word="word")
    page.write([run])
    return run


def test_nothing_a_model_writes_becomes_markup(lake: Path, tmp_path: Path) -> None:
    harmless = outline((lake / "report.html").read_text())
    hostile_text = page.write([make_run(tmp_path / "hostile")]).read_text()
    hostile = outline(hostile_text)
    assert hostile.tags.count("script") == harmless.tags.count("script") == 1
    assert "img" not in hostile.tags
    assert not any(name.startswith("on") for name, _ in hostile.attributes)
    assert (
        "<script>alert" not in hostile_text
        and "{{ 7*7 }}" in hostile_text
        and "49" not in hostile_text.split("Recipe")[1]
    )


def test_the_page_needs_nothing_but_itself(lake: Path) -> None:
    text = (lake / "report.html").read_text()
    links = [value for name, value in outline(text).attributes if name in ("src", "href", "xlink:href")]
    assert all((value or "").startswith("#") for value in links)
    assert not re.search(r"url\((?!#)|@import", text)


def test_the_page_shows_table_curves_stages_recipe_and_episodes(lake: Path) -> None:
    text = (lake / "report.html").read_text()
    for part in (
        "<title>lake",
        "Headline word",
        "50.0",
        "[40.0, 60.0]",
        "Success",
        "All 2 other metrics",
        "Wall-clock time",
    ):
        assert part in text, part
    assert "system: toy" in text and "Predicted by the agent" in text and "<mark>" in text


def test_a_run_that_only_began_has_a_page_too(tmp_path: Path) -> None:
    Run.open(tmp_path / "run", Recipe(system="toy")).close()
    text = page.write([tmp_path / "run"]).read_text()
    assert "not finished" in text and "Episodes" not in text
    outline(text)


def test_a_comparison_joins_tables_and_names_what_differs(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, seed, "word") for seed, name in enumerate(("a", "b"))]
    target = page.write(runs, tmp_path / "both.html")
    text = target.read_text()
    outline(text)
    assert text.count("Headline word") == 1 and "Where the recipes differ" in text
    assert ">seed<" in text and "a: word" in text and "b: word" in text


def test_long_settings_side_by_side_break_and_numbers_stay_whole(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, seed, "word") for seed, name in enumerate(("a", "b"))]
    recipe = runs[1] / "recipe.yaml"
    recipe.write_text(recipe.read_text() + f"note: {'a long sentence ' * 40}\n")
    text = page.write(runs, tmp_path / "both.html").read_text()
    assert (
        '<td class="words long" data-column="b">a long sentence' in text
        and '<td class="words" data-column="b">1<' in text
    )
    assert "td.words { white-space: normal; overflow-wrap: anywhere; }" in text and "nowrap" in text


def test_the_same_run_gives_the_same_page(lake: Path) -> None:
    before = (lake / "report.html").read_bytes()
    assert page.write([lake]).read_bytes() == before


def test_a_damaged_summary_is_one_line(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "run" / "summary.json").write_text('{"tables": [')
    with pytest.raises(OneiroError, match=r"summary\.json is not valid JSON"):
        page.write([tmp_path / "run"])


def test_a_plot_takes_the_colour_and_font_of_the_page() -> None:
    svg = curves("Loss in $ & <b>", [Series("a_1 <i>", [1, 2], [3.0, 4.0]), Series("b", [1], [2.0])])
    assert svg.startswith("<svg") and "currentColor" in svg and 'font-family="inherit"' in svg
    assert "<b>" not in svg and "Loss in $ &amp; &lt;b&gt;" in svg
    assert "a_1 &lt;i&gt;" in svg


def test_the_running_mean_stays_centred_up_to_the_ends() -> None:
    line = np.arange(10.0)
    assert running_mean(line, 3) == pytest.approx(line)
    assert running_mean(np.array([0.0, 3.0, 0.0, 0.0]), 1) == pytest.approx([0, 1, 1, 0])


def test_a_level_line_is_drawn_level_whatever_its_last_digits() -> None:
    drawn = curves("mi", [Series("spa", [1, 2, 3], [2.772588720, 2.772588722, 2.772588723])])
    assert ">2.8<" in drawn
    (points,) = re.findall(r'points="([^"]+)"', drawn)
    assert len({point.split(",")[1] for point in points.split()}) == 1


def test_ticks_are_round_and_span_the_values() -> None:
    assert nice_ticks(0, 100) == [0, 25, 50, 75, 100]
    assert nice_ticks(0.013, 0.08) == [0.0, 0.02, 0.04, 0.06, 0.08]
    assert nice_ticks(1, 6, whole=True) == [0, 2, 4, 6]
    assert nice_ticks(3, 3, whole=True) == [3]


def test_a_single_point_has_one_tick_at_its_step() -> None:
    drawn = curves("mi", [Series("spa", [7], [0.5]), Series("plain", [7], [0.7])])
    assert re.findall(r'text-anchor="middle">([^<]*)<', drawn) == ["7", "step"]


def test_points_stand_where_their_numbers_say_and_what_is_no_number_is_left_out() -> None:
    drawn = curves("success", [Series("spa", [0, 5, 8, 10], [0.0, 0.5, float("nan"), 1.0])], "%")
    (points,) = re.findall(r'points="([^"]+)"', drawn)
    (left, bottom), (middle, half), (right, top) = ([float(n) for n in point.split(",")] for point in points.split())
    assert middle == (left + right) / 2 and half == (bottom + top) / 2 and top < bottom
    grid = {label: float(y) - 4 for y, label in re.findall(r'y="([\d.]+)" text-anchor="end">([^<]*)<', drawn)}
    assert (grid["0 %"], grid["50 %"], grid["100 %"]) == pytest.approx((bottom, half, top), abs=0.1)


def test_one_missing_number_takes_no_others_with_it() -> None:
    drawn = curves("loss", [Series("spa", range(401), [float("nan"), *map(float, range(400))])])
    assert len(re.findall(r'points="([^"]+)"', drawn)[0].split()) == 400


def test_no_number_at_all_is_an_empty_figure() -> None:
    assert "<polyline" in curves("loss", [Series("spa", [1], [float("nan")])])


def test_a_long_title_takes_two_lines() -> None:
    title = "How much reasoning depends on its prompt: mutual information a token over the spread between replies"
    drawn = curves(title, [Series("spa", [1, 2], [0.5, 0.6])])
    lines = [line for line in re.findall(r"<t(?:ext|span)[^>]*>([^<\n]+)<", drawn) if line in title]
    assert len(lines) == 2 and " ".join(lines) == title


def make_wide_run(path: Path) -> Path:
    """A picture, a wide table and a long one."""
    wide = Table("Wide", ["frames", *(f"measure {place}" for place in range(5))], {"measure 0": "%"})
    wide.add("a rather long name of a row", *(Cell(0.5, 0.4, 0.6, 100) for _ in range(5)))
    long = Table("Long", ["ahead", "frames", "MSE"])
    for row in range(28):
        long.add(f"frame {row}", "base", row / 7)
    with Run.open(path, Recipe(system="toy")) as run:
        for step in range(1, 9):
            run.log("rl", step, {"success": step / 8})
        save_gif(path / "images" / "a.gif", dict.fromkeys(("truth", "base"), np.zeros((2, 8, 160, 3), np.uint8)))
        run.summary(
            {
                "tables": [wide.data(), long.data()],
                "images": [{"title": "Segment", "file": "images/a.gif"}],
                "curves": [{"title": "Success", "key": "success", "unit": "%", "stages": {"rl": "rl"}}],
            }
        )
    return path


def test_pictures_come_after_the_first_table_and_long_tables_are_folded(tmp_path: Path) -> None:
    text = page.write([make_wide_run(tmp_path / "run")]).read_text()
    outline(text)
    places = [text.index(part) for part in ("<h2>Wide", "<img src", "<h2>Long", "<summary>28 rows", "Learning curves")]
    assert places == sorted(places)
    assert '<td class="name last" data-column="frames">base<' in text  # "ahead" and "frames" name a row of numbers


CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
ENDS = """() => [...document.querySelectorAll("td, img, .plots svg")]
  .filter(part => part.checkVisibility()).map(part => part.getBoundingClientRect().right)"""


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine")
def test_tables_curves_and_pictures_fit_the_width_of_a_telephone_and_of_a_screen(tmp_path: Path) -> None:
    path = page.write([make_wide_run(tmp_path / "run")])
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]) as browser,
    ):
        for width in (390, 1280):
            window = browser.new_page(viewport={"width": width, "height": 800})
            window.goto(path.as_uri())
            ends = window.evaluate(ENDS)
            assert len(ends) >= 8
            assert max(ends) <= width


def test_stages_that_ran_side_by_side_count_once() -> None:
    def stage(start: str, seconds: float) -> dict[str, object]:
        return {"started": f"2026-01-01T10:{start}+00:00", "seconds": seconds}

    assert page.seconds_at_work([stage("00:00", 10.0), stage("00:10", 5.5)]) == 15.5
    both = [stage("00:00", 10.0), stage("00:05", 20.0), stage("00:06", 2.0), stage("01:00", 1.0), {"seconds": 4.0}]
    assert page.seconds_at_work(both) == 26.0
    assert page.seconds_at_work([]) == 0.0
