"""The board's pages: what they refuse, what they show, and that nothing in an episode becomes markup."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from oneiro import cli
from oneiro.board import draw, views
from oneiro.board.episodes import EpisodeRow
from oneiro.board.server import make_app
from oneiro.episode import Episode, Row, Segment, given
from oneiro.recipe import Recipe
from oneiro.report.table import Cell, Table
from oneiro.rundir.run import Run
from oneiro.runtime.files import write_json

HOSTILE = "</pre><script>alert('x')</script><img src=x onerror=alert(1)>\x1b[31m\u202eabc\ud800${7*7}{{ 7*7 }}שלום"
LAKE = "P _\n_ G"
MOVED = "_ P\n_ G"


def make_run(path: Path, word: str = "word", seed: int = 0, gain: float = 0.0) -> Path:
    """Four cases of two attempts; `gain` is added to every score of the first two."""
    table = Table(f"Success {word}", ["agent", "success"], {"success": "%"}, note=word)
    table.add(word, Cell(0.5, 0.4, 0.6, 100))
    with Run.open(path, Recipe(system="toy", about=word, seed=seed)) as run:
        run.stage("rl", lambda: None)
        for step in range(1, 5):
            run.log("rl", step, {"success": step / 4, f"odd {word}": 1.0})
        turn = {"state": LAKE, "prediction": MOVED, "next_state": LAKE, "reply": word, "message": word}
        turns = [{**turn, "actions": [word], "reward": 0.5}, {**turn, "state": word, "observation": word + "!"}]
        rows = []
        for case in range(4):
            for member in range(2):
                score = 0.25 * case + (gain if case < 2 else 0)
                rows.append({"world": "frozen-lake", "task": f"level {case}", "seed": case, "group": case})
                rows[-1] |= {"member": member, "score": score, "success": score >= 0.5, "finish_reason": word}
                rows[-1] |= {"turns": turns, "terms": {word: [0.5]}, "error": word}
        run.episodes("rl", 1, rows)
        run.episodes("rl", 3, rows[:2])
        run.tokens("rl", 1, [Episode([Row([given([0]), Segment(np.array([1]), True, logprobs=np.zeros(1))])])])
        candidates = [{"action": name, "value": 0.5, "predicted": name} for name in (word, LAKE)]
        turn = {"state": word, "next_state": word, "choice": word, "plan": [word] * 2, "candidates": candidates}
        trace = {"label": word, "world": word, "task": word, "turns": [turn, {**turn, "state": LAKE}]}
        write_json(path / "traces.json", {"traces": [trace]})
        curve = {"title": f"Success {word}", "key": "success", "unit": "%", "stages": {word: "rl"}}
        run.summary({"tables": [table.data()], "curves": [curve], "notes": [word]})
        run.finish()
    weights = path / "checkpoints" / "rl" / "model"
    weights.mkdir(parents=True)
    (weights / "config.json").write_text("{}")
    Tokenizer(WordLevel({word.replace("\ud800", ""): 0, "other": 1})).save(str(weights / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "one")
    make_run(folder / "other", seed=1, gain=0.5)
    make_run(folder / "hostile", HOSTILE)
    return folder


@pytest.fixture(scope="module")
def client(runs: Path) -> TestClient:
    return TestClient(make_app([runs]), base_url="http://127.0.0.1:7780")


PAGES = [
    "/",
    "/run?run={}",
    "/run?run={}&all=1",
    "/step?run={}&stage=rl&step=1",
    "/compare?run={}",
    "/traces?run={}",
] + [f"/episode?run={{}}&stage=rl&step=1&at={at}" for at in ("0", "7", "0&colour=author")]


# What it refuses


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7780", "127.0.0.1.evil.example", "", "[", "localhost@x"]
)
def test_a_name_of_another_site_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:7780"])
def test_names_of_this_machine_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


def test_other_machines_need_the_token_once(runs: Path) -> None:
    outside = TestClient(make_app([runs], "secret", closed=True), base_url="http://board.lan")
    assert outside.get("/").status_code == 403
    assert outside.get("/board.js").status_code == 403
    assert outside.get("/?token=wrong").status_code == 403
    opened = outside.get("/?token=secret&q=one", follow_redirects=False)
    assert opened.status_code == 303 and opened.headers["location"] == "http://board.lan/?q=one"
    cookie = opened.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert outside.get("/").status_code == 200


def test_every_answer_has_a_strict_policy(client: TestClient) -> None:
    for path in ("/", "/board.js", "/nothing", "/run?run=nothing"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/run?run=../secret",
        "/run?run=/etc",
        "/step?run=one&stage=../../x&step=1",
        "/episode?run=one&stage=rl&step=1&at=99",
        "/image?run=one&file=../../etc/passwd.png",
        "/image?run=one&file=recipe.yaml",
        "/text?run=one&stage=rl&step=1&at=0&turn=9&part=reply",
        "/text?run=one&stage=rl&step=1&at=0&turn=0&part=__class__",
        "/compare",
        "/..%2f..%2fetc%2fpasswd",
        "/server.py",
    ],
)
def test_what_is_not_there_is_one_line(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404 and "root:" not in answer.text


def test_writing_needs_the_token_of_the_page(client: TestClient) -> None:
    assert client.post("/play?run=one&model=x", data={"token": "guess"}).status_code == 403
    assert client.post("/", data={}).status_code == 405
    assert client.post("/play", headers={"content-length": str(1 << 22)}).status_code == 413


def test_a_mistake_in_the_command_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["board", str(tmp_path / "nothing")]) == 2
    assert "give runs, or a folder that holds some" in capsys.readouterr().err
    make_run(tmp_path / "run")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert cli.main(["board", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another --port" in capsys.readouterr().err


# What it shows


@pytest.mark.parametrize("path", PAGES)
def test_nothing_a_model_writes_becomes_markup(client: TestClient, path: str) -> None:
    def tags(text: str) -> list[str]:
        return re.findall(r"<(?:script|img|iframe|a|svg|form|input)\b", text)

    hostile, harmless = client.get(path.format("hostile")), client.get(path.format("one"))
    assert hostile.status_code == harmless.status_code == 200
    assert sorted(tags(hostile.text)) == sorted(tags(harmless.text))
    assert "<script>alert" not in hostile.text and "onerror=alert(1)>" not in hostile.text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", hostile.text)
    assert not re.search(r' on\w+="| style="', hostile.text)


def test_long_texts_are_cut_on_the_page_and_whole_behind_it(tmp_path: Path) -> None:
    reply = "<b>" + "x" * 400_000
    with Run.open(tmp_path / "run", Recipe(system="toy")) as run:
        turn = {"reply": reply, "state": reply, "next_state": reply, "prediction": "y", "actions": [reply]}
        run.episodes(
            "rl", 1, [{"turns": [turn], "task": reply, "world": reply, "finish_reason": reply, "error": reply}]
        )
        candidate = {"action": reply[:20_000], "value": 0, "predicted": reply[:20_000]}
        turn = {**turn, "choice": reply, "candidates": [candidate] * 99}
        write_json(run.path / "traces.json", {"traces": [{"label": reply, "task": reply, "turns": [turn]}]})
    client = TestClient(make_app([tmp_path]), base_url="http://localhost")
    for path in ("step?run=run&stage=rl&step=1", "compare?run=run", "traces?run=run", "?q=run"):
        assert len(client.get(path).text) < 200_000, path
    page = client.get("/episode?run=run&stage=rl&step=1&at=0").text
    assert len(page) < 200_000 and "more characters" in page
    whole = client.get("/text?run=run&stage=rl&step=1&at=0&turn=0&part=reply")
    assert whole.text == reply and whole.headers["content-type"].startswith("text/plain")


def test_a_curve_leads_to_the_nearest_step_that_was_kept(client: TestClient) -> None:
    assert 'data-link="step?run=one&amp;stage=rl&amp;step={}" data-kept="1,3"' in client.get("/run?run=one").text
    page = client.get("/step?run=one&stage=rl&step=4").text
    assert "<h1>rl, step 3</h1>" in page and "episodes of step 4 were not kept" in page


def test_a_step_filters_by_bar_outcome_and_words(client: TestClient) -> None:
    def listed(query: str) -> list[str]:
        return re.findall(r">(level \d)</a>", client.get(f"/step?run=one&stage=rl&step=1{query}").text)

    assert listed("") == ["level 3", "level 2", "level 1", "level 0"]  # best first
    assert listed("&bar=1") == ["level 1"]
    assert listed("&outcome=lost") == ["level 1", "level 0"]
    assert listed("&q=LEVEL+2") == ["level 2"]
    assert listed("&q=nowhere") == []
    assert "4 groups scored all alike" in client.get("/step?run=one&stage=rl&step=1").text


def test_an_episode_draws_grids_and_frames_what_was_predicted_wrong(client: TestClient) -> None:
    page = client.get("/episode?run=one&stage=rl&step=1&at=0").text
    first = page[: page.index('id="turn-2"')]
    assert first.count('class="world"') == 3 and first.count('class="differs"') == 2
    assert first.count('class="cell player"') == 3


def test_an_exported_page_stands_alone(client: TestClient) -> None:
    answer = client.get("/run?run=hostile&export=1")
    assert answer.headers["content-disposition"].endswith('.html"')
    assert not re.search(r' (?:src|href|action)="(?!#|data:)', answer.text)
    assert "default-src 'none'" in answer.text and "<style>" in answer.text and answer.text.count("<script>") == 1


def test_the_runs_page_filters_by_name_and_status(client: TestClient) -> None:
    assert re.findall(r'value="(\w+)" aria-label="compare', client.get("/?q=oth").text) == ["other"]
    assert "No run here" in client.get("/?status=running").text


# Numbers, worked by hand


def test_two_runs_are_compared_case_by_case(client: TestClient) -> None:
    # Scores 0, .25, .5, .75 against .5, .75, .5, .75: two cases gain 0.5, two nothing; success 2 of 4 against 4 of 4.
    page = client.get("/compare?run=one&run=other&one=one|rl|1&other=other|rl|1").text
    cells = re.findall(r"<td>\s*<b>(-?[\d.]+)</b>", page[page.index("paired difference") :])
    assert cells[:6] == ["50.0", "100.0", "50.0", "0.375", "0.625", "0.25"]
    assert "4 cases that both attempted" in page and "Where they part: 2 cases" in page
    assert "<td>seed</td>" not in page and ">seed</b>" in page  # where the recipes differ


def row(case: int, score: float) -> EpisodeRow:
    return EpisodeRow(0, 0, 0, "w", "t", case, 0, 0, score > 0, "", score, 0, 1)


def test_a_pairing_averages_attempts_and_leaves_out_single_cases() -> None:
    one = [row(1, 0.0), row(1, 1.0), row(2, 1.0), row(3, 5.0)]
    other = [row(1, 1.0), row(2, 0.0), row(2, 1.0), row(4, 7.0)]
    paired = views.pair(one, other)
    assert (paired.cases, paired.only_one) == (2, 2)
    assert paired.score[0].value == 0.75 and paired.score[1].value == 0.75 and paired.score[2].value == 0.0
    assert [(gain, a.score, b.score) for gain, a, b in paired.parted] == [(0.5, 0.0, 1.0), (-0.5, 1.0, 0.0)]


def test_bars_hold_every_score_once() -> None:
    scores = [0.0, 0.0, 1.0, 0.9]
    assert [(bar.low, bar.count) for bar in draw.histogram(scores)] == [(0.0, 2), (0.9, 1), (1.0, 1)]
    many = [number / 99 for number in range(100)]
    bars = draw.histogram(many)
    assert len(bars) == 12 and sum(bar.count for bar in bars) == 100
    hits = [[draw.in_bar(score, bar, bar is bars[-1]) for bar in bars].count(True) for score in many]
    assert hits == [1] * 100
    assert [bar.count for bar in bars] == [sum(draw.in_bar(s, bar, bar is bars[-1]) for s in many) for bar in bars]


def test_only_texts_with_a_character_a_cell_are_grids() -> None:
    assert draw.grid_cells("P _\n_ G") == [["P", "_"], ["_", "G"]]
    assert draw.grid_cells("P_\n_G") == [["P", "_"], ["_", "G"]]
    for text in ("", "P _", "P _\n_", "P _\n_ GG", "a word\nor two", "x" * 40 + "\n" + "x" * 40, None):
        assert draw.grid_cells(text) is None


def test_changed_lines_of_a_page_are_shown_with_a_little_around_them() -> None:
    before = "\n".join(f"line {number}" for number in range(9))
    after = before.replace("line 4", "new 4")
    assert views.changed_lines(before, after) == [
        ("…", ""),
        (" ", "line 2"),
        (" ", "line 3"),
        ("-", "line 4"),
        ("+", "new 4"),
        (" ", "line 5"),
        (" ", "line 6"),
    ]
    assert views.changed_lines(before, before) == []
