"""Play: both worlds answer, differences are counted, the session is its address and can be saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oneiro.agents.planning import webpages
from oneiro.agents.planning.base import EveryAction, Judged, PlannerSettings
from oneiro.agents.planning.policy import PlanningPolicy, make_planner
from oneiro.agents.planning.rules import observe_game
from oneiro.agents.planning.values import RuleValue
from oneiro.board import kinds
from oneiro.board import play as players
from oneiro.board.folders import Runs
from oneiro.board.kinds import ask_planner, physics_table, textgame_table, web_table
from oneiro.board.play import Option, PlayTable, play, playable
from oneiro.board.server import make_app
from oneiro.models.language import LanguageModel
from oneiro.recipe import Recipe
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_json
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.base import Cached, Dynamics, Flaw, Imagined, Malformed
from oneiro.tasks.grid import GridMetadata, GridPredictorConfig, TrueLake
from oneiro.tasks.rules.physics import PhysicsPredictor, PhysicsPredictorConfig, PhysicsSituation
from oneiro.tasks.rules.physics_dynamics import PhysicsDynamics, observe
from oneiro.tasks.rules.rulebook.cases import RuleCase, obey
from oneiro.tasks.rules.rulebook.evaluation import RulebookDynamics
from oneiro.tasks.rules.rulebook.predictor import RulebookPredictor
from oneiro.tasks.textgame.model import TextGameDynamics
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.tasks.webpage.model import TrueWeb
from oneiro.worlds.base import World
from oneiro.worlds.grid.frozen_lake.world import FrozenLake
from oneiro.worlds.registry import WorldChoice, make
from oneiro.worlds.rules.physics import WORDS, advance, displacement, read_map
from oneiro.worlds.rules.physics_world import PhysicsWorld
from oneiro.worlds.rules.rulebook.world import RulebookWorld

LAKE = {"view": "spaced"}
SEED = 3
"""An unseen level where Down, then Down reaches the goal."""


class Frozen(Dynamics[str]):
    """Believes that nothing ever moves; what it says of Right cannot be read."""

    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        return [[Imagined(Malformed(Flaw.EMPTY) if action == "Right" else state)] for state, action in pairs]


def table_of(dynamics: Dynamics[str]) -> PlayTable:
    return PlayTable(Cached(dynamics), lambda game: make("frozen-lake", **LAKE), render, actions_of)


def actions_of(world: World) -> dict[str, str]:
    return {action: action for action in world.actions or ()}


def render(world: World) -> str:
    return world.render()


@pytest.fixture
def true_table() -> PlayTable:
    world = make("frozen-lake", **LAKE)
    assert isinstance(world, FrozenLake)
    return table_of(TrueLake(world))


def test_a_perfect_model_never_parts_from_the_truth(true_table: PlayTable) -> None:
    modes: tuple[players.Mode, ...] = ("step", "free")
    for mode in modes:
        session = play(true_table, "", SEED, ["Up", "Down", "Down", "Down", "Down"], mode)
        assert session.parted is None and session.right == len(session.steps) == 4  # the last found it over
        assert session.over and session.success and session.finish == "goal" and session.actions == {}


def test_in_step_the_model_gets_the_truth_and_free_it_goes_its_own_way() -> None:
    stuck = table_of(Frozen())
    step = play(stuck, "", SEED, ["Up", "Up", "Down"], "step")
    # Up moves once, then bumps into the edge: nothing moves, as the model says. Down moves again.
    assert [one.exact for one in step.steps] == [False, True, False] and step.parted == 1 and step.right == 1
    free = play(stuck, "", SEED, ["Up", "Up", "Down"], "free")
    assert [one.before for one in free.steps] == [free.start] * 3
    # After Down the truth has come back to where the frozen model always was.
    assert [one.exact for one in free.steps] == [False, False, True]


def test_an_answer_that_cannot_be_read_changes_nothing() -> None:
    session = play(table_of(Frozen()), "", SEED, ["Right", "Up"], "free")
    assert session.steps[0].predicted is None and not session.steps[0].exact
    assert session.steps[0].truth != session.start and session.steps[1].before == session.start


def test_a_session_is_bounded(true_table: PlayTable) -> None:
    with pytest.raises(OneiroError, match="at most"):
        play(true_table, "", 0, ["Up"] * 201, "step")
    with pytest.raises(OneiroError, match="at most"):
        play(true_table, "", 0, ["x" * 301], "step")


@pytest.fixture
def run_folder(tmp_path: Path, tiny: LanguageModel) -> Path:
    """A run with one world model of grids, untrained."""
    with Run.open(tmp_path / "run", Recipe(system="toy")) as run:
        run.stage("world-model", lambda: None)
    task = GridPredictorConfig(world=WorldChoice(name="frozen-lake", **LAKE))
    GridMetadata(task=task, sampling=SamplingSettings(max_tokens=8)).write(tiny)
    tiny.save(tmp_path / "run" / "checkpoints" / "world-model" / "model")
    (tmp_path / "run" / "checkpoints" / "broken").mkdir()
    return tmp_path / "run"


def test_a_world_model_of_a_run_is_played_and_saved_through_the_page(run_folder: Path) -> None:
    client = TestClient(make_app([run_folder]), base_url="http://localhost")
    assert 'href="play?run=run&amp;model=world-model"' in client.get("/run?run=run").text
    address = f"/play?run=run&model=world-model&seed={SEED}&mode=free&do=Up&do=Down"
    page = client.get(address).text
    assert "steps until they part" in page and page.count('class="world"') >= 1
    assert f"seed={SEED}&amp;mode=free&amp;do=Up&amp;do=Down&amp;do=Left" in page  # the next move
    assert f'seed={SEED}&amp;mode=free&amp;do=Up"' in page  # a fork at the first step
    token = re.search(r'name="token" value="([^"]+)"', page)
    assert token
    assert client.post(address, data={"token": "wrong"}).status_code == 403
    saved = client.post(address, data={"token": token[1]}, follow_redirects=False)
    assert saved.status_code == 303 and saved.headers["location"] == "episode?run=run&stage=play&step=0&at=0"
    run = next(iter(Runs([run_folder]).all().values()))
    episode = run.episodes.read("play", 0, 0)
    assert [turn["actions"] for turn in episode["turns"]] == [["Up"], ["Down"]]
    assert episode["seed"] == SEED and episode["mode"] == "free" and episode["player"] == "person"
    assert client.get("/" + saved.headers["location"]).status_code == 200
    assert (
        client.post(address, data={"token": token[1]}, follow_redirects=False)
        .headers["location"]
        .endswith("step=1&at=0")
    )
    assert client.get("/play?run=run&model=../../x").status_code == 404


def test_agents_after_sft_come_before_those_after_rl(tmp_path: Path) -> None:
    run_path = tmp_path / "run"
    Run.open(run_path, Recipe(system="toy")).close()
    for name, world_model in (
        ("rl-spa", True), ("sft-spa", True), ("sft-no-world-model", False), ("sft-copy-state", True)
    ):  # fmt: skip
        folder = run_path / "checkpoints" / name / "model"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        world = {"name": "frozen-lake", "size": 4}
        said = {"kind": "agent", "world": world, "dialogue": {"world_model": world_model}}
        write_json(folder / "oneiro.json", {**said, "copies_state": name.endswith("copy-state")})
    run = next(iter(Runs([run_path]).all().values()))
    assert [model.name for model in playable(run)] == ["sft-spa", "rl-spa"]


def test_of_the_demo_only_the_agents_that_predict_are_offered(finished: Callable[[str, str], Path]) -> None:
    run = next(iter(Runs([finished("spa/frozen-lake", "smoke")]).all().values()))
    assert [model.name for model in playable(run)] == ["sft-spa", "rl-spa"]
    said = [note for note in run.summary["notes"] if note.startswith("Before RL began")]
    assert len(said) == 1 and "spa reached" in said[0]


def planned(dynamics: Dynamics[Any], observe: Callable[[World], Any], **settings: Any) -> PlanningPolicy[Any]:
    """A policy that values every state alike."""
    search = make_planner(
        dynamics,
        EveryAction(lambda state: ["Up", "Down"]),
        RuleValue(lambda *_: Judged(0.5)),
        PlannerSettings(**settings),
    )
    return PlanningPolicy(search, observe)


def test_text_games_are_played_too() -> None:
    dynamics = TextGameDynamics(TextGamePredictor(), lambda cases: ["{}"] * len(cases))
    table = textgame_table(planned(dynamics, observe_game))
    opened = play(table, "brew-tea", 0, [], "step")
    assert "Score: 0" in opened.start and opened.actions and opened.more_actions >= 0
    session = play(table, "brew-tea", 0, list(opened.actions)[:2], "step")
    assert [step.predicted for step in session.steps] == [None, None] and session.world == "textgame"


def test_a_room_is_played_beside_a_model_of_where_the_walker_goes() -> None:
    room = open_room()

    def right(cases: Sequence[PhysicsSituation]) -> list[str]:
        steps = []
        for case in cases:
            before = read_map(room.physics, case.text)
            assert before is not None
            steps.append(displacement(before, advance(room.physics, before, WORDS.index(case.word))))
        return steps

    # In step, the model sees the true map each time: it is right about the walker, and says nothing of the rest.
    session = play(room_table(right), "", 0, ["zo", "ka", "nonsense", "mu", "ri"], "step")
    assert session.parted is None and session.right == len(session.steps) == 5
    assert any(step.predicted != step.truth for step in session.steps)
    still = play(room_table(lambda cases: ["0"] * len(cases)), "", 0, ["ri"], "step")
    (step,) = still.steps
    assert step.predicted == still.start and not step.exact and step.verdict == "differs"
    outside = play(room_table(lambda cases: ["LLLL"] * len(cases)), "", 0, ["zo"], "step")  # the room has five columns
    assert outside.steps[0].predicted is None and outside.steps[0].verdict == "unreadable"


def room_table(answer: Callable[[Sequence[PhysicsSituation]], Sequence[str]]) -> PlayTable:
    predictor = PhysicsPredictor(PhysicsPredictorConfig(view="map"))
    return physics_table(planned(PhysicsDynamics(predictor, answer), lambda world: observe(world, "map")), {})


def open_room() -> PhysicsWorld:
    world = make("physics")
    world.reset(seed=0, options={"split": "eval"})
    assert isinstance(world, PhysicsWorld)
    return world


def test_a_rulebook_is_played_beside_a_model_of_what_changes() -> None:
    predictor = RulebookPredictor()

    def true_answers(cases: Sequence[RuleCase]) -> list[str]:
        return [predictor.target(replace(case, outcome=obey(case, case.game.book))) for case in cases]

    dynamics = RulebookDynamics(predictor, true_answers)
    table = PlayTable(Cached(dynamics), lambda game: make("rulebook", rules=(2, 3)), dynamics.observe, actions_of)
    world = make("rulebook", rules=(2, 3))
    world.reset(seed=1, options={"split": "eval"})
    assert isinstance(world, RulebookWorld)
    moves = [action for action in world.game.actions() if dynamics.predict([(dynamics.observe(world), action)])][:3]
    session = play(table, "", 1, [*moves, "no such thing"], "free")
    assert session.parted is None and session.right == 4 and "Steps taken: 4" in session.truth
    assert "The rules of this game" in session.instruction
    lazy = RulebookDynamics(predictor, lambda cases: ["nothing"] * len(cases))
    solution = world.oracle()
    assert solution is not None
    table = PlayTable(Cached(lazy), table.make_world, lazy.observe, actions_of)
    assert play(table, "", 1, [solution], "step").parted == 1


def test_web_pages_are_played_with_the_true_one_in_an_inert_frame() -> None:
    web = TrueWeb(lambda: make("web:map"))  # type: ignore[arg-type, return-value]
    table = web_table(planned(web, webpages.observe), ("map",))
    opened = play(table, "map", 0, [], "step")
    click = next(action for action in opened.actions if action.startswith("click"))
    assert "where" in opened.actions[click]  # the button names what is clicked
    session = play(table, "map", 0, [click], "free")
    assert session.parted is None and session.steps[0].verdict == "as it is"
    assert session.document is not None and "<script" not in session.document and "<link" not in session.document
    assert table.playing is not None and table.playing.taken == [click]
    web.close()
    table.close()
    assert table.playing is None


def test_a_session_goes_on_from_where_it_was_and_a_fork_begins_anew(true_table: PlayTable) -> None:
    play(true_table, "", SEED, ["Up"], "step")
    before = true_table.playing
    longer = play(true_table, "", SEED, ["Up", "Down"], "step")
    assert true_table.playing is before and len(longer.steps) == 2
    fork = play(true_table, "", SEED, ["Down"], "step")
    assert true_table.playing is not before and [step.action for step in fork.steps] == ["Down"]
    again = play(table_of(true_table.dynamics.inner), "", SEED, ["Up", "Down"], "step")
    assert again.steps == longer.steps


def test_a_planner_says_what_it_thinks_of_every_action(true_table: PlayTable) -> None:
    policy = planned(true_table.dynamics, render, depth=1)
    true_table.ask = ask_planner(policy)
    options = play(true_table, "", SEED, [], "step", ask=True).options
    assert options is not None and {option.action for option in options} == {"Up", "Down"}
    assert [option.value for option in options] == pytest.approx([0.5 * 0.95] * 2)


def test_the_model_is_asked_for_the_action_as_it_reads_on_its_own_state(true_table: PlayTable) -> None:
    true_table.carry = lambda action, truth, imagined: "Down"
    (step,) = play(true_table, "", SEED, ["Up"], "step").steps
    assert (
        step.action == "Up" and not step.exact and step.predicted == play(true_table, "", SEED, ["Down"], "step").truth
    )


@pytest.mark.parametrize("path", ["/play", "/frame"])
def test_nothing_a_model_or_a_world_says_in_play_becomes_markup(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    class Says(Dynamics[str]):
        def predict(
            self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0
        ) -> list[list[Imagined[str]]]:
            return [[Imagined(action)] for _, action in pairs]

    def answer(word: str) -> Any:
        table = PlayTable(
            Cached(Says()),
            lambda game: make("frozen-lake", **LAKE),
            lambda world: word + render(world),
            lambda world: {word: word},
            games=(word,),
            ask=lambda world: [Option(word, word, 0.5)],
            document=lambda world: word,
            about=word,
        )
        monkeypatch.setattr(kinds, "open_table", lambda model: table)
        client = TestClient(make_app([run_folder]), base_url="http://localhost")
        return client.get(
            path,
            params={"run": "run", "model": "world-model", "ask": 1, "frame": 1, "do": [word.replace("\ud800", "")]},
        )

    hostile = answer("</pre><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202eabc\ud800")
    assert hostile.status_code == 200
    if path == "/frame":  # the page of a site as it is, where nothing can run, load or lead anywhere
        policy = hostile.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and policy.endswith("; sandbox")
        return
    tags = re.compile(r"<(?:script|img|iframe|a|svg|form|input|option)\b")
    assert sorted(tags.findall(hostile.text)) == sorted(tags.findall(answer("word").text))
    assert "<script>alert" not in hostile.text and not re.search("[\x00-\x08\x0b-\x1f\u202e]", hostile.text)
