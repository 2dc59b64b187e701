"""What each world of planning counts, on predictions made up by hand."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from oneiro.agents.learners import lake as lakes
from oneiro.agents.learners.lake import read_action, steps_in, transitions
from oneiro.agents.learners.pages import as_turns, browsed_pages, by_episode, is_success
from oneiro.recipe import load
from oneiro.systems.plan import lake, physics, textgame, web
from oneiro.systems.plan.lake import LakePlanning
from oneiro.systems.plan.physics import PhysicsPlanning, draw_decision, read_word, room_rule
from oneiro.systems.plan.recipe import PlanPhysicsRecipe
from oneiro.systems.plan.textgame import TextGamePlanning
from oneiro.systems.plan.web import WebPlanning
from oneiro.tasks.base import Imagined
from oneiro.tasks.rules.physics import STAYED, PhysicsSituation
from oneiro.tasks.rules.physics_dynamics import read_tiles
from oneiro.tasks.webpage.state import PageState, PageTransition
from oneiro.worlds.grid.frozen_lake.world import FrozenLake, FrozenLakeConfig
from oneiro.worlds.rules.physics import DISPLACEMENTS, WORDS
from oneiro_web.diff import Item


def record(*turns: tuple[str, str, str]) -> dict[str, Any]:
    return {"turns": [{"state": s, "actions": [a], "next_state": n, "reward": 0.0} for s, a, n in turns]}


# Lakes ----------------------------------------------------------------------------------------------------------------


def test_steps_of_a_lake_are_learned_once_each_and_counted_all() -> None:
    played = [record(("a", "Up", "b"), ("b", "Down", "a")), record(("a", "Up", "b"), ("a", "fly", "a"))]
    played[1]["turns"].append({"state": "b", "actions": ["Up", "Up"], "next_state": "c"})
    assert [(one.state, one.action, one.after) for one in transitions(played)] == [("a", "Up", "b"), ("b", "Down", "a")]
    assert steps_in(played) == 5
    assert read_action("<answer>Left</answer>") == "Left" and read_action("Left") is None


def test_random_play_tells_how_an_episode_ended_and_what_it_earned() -> None:
    world = FrozenLake(FrozenLakeConfig(view="spaced", max_actions=6))
    reasons = Counter()
    for one in lakes.random_play(world, range(60), "train", 0):
        reasons[one["finish_reason"]] += 1
        assert one["score"] == sum(turn["reward"] for turn in one["turns"]) and one["world"] == world.name
        assert one["success"] == (one["finish_reason"] == "goal")
        if one["finish_reason"] == "budget":
            assert len(one["turns"]) == 6
        assert all(a["next_state"] == b["state"] for a, b in zip(one["turns"], one["turns"][1:], strict=False))
    assert set(reasons) == {"goal", "failed", "budget"}


def test_exact_predictions_on_a_lake_are_shares_of_each_level(monkeypatch: pytest.MonkeyPatch) -> None:
    played = [
        record(("a", "Up", "b"), ("b", "Up", "b"), ("b", "Down", "c"), ("c", "Up", "c")),
        record(("x", "Up", "x")),
    ]
    monkeypatch.setattr(lake, "random_play", lambda world, chosen, split, seed: played)
    monkeypatch.setattr(lake, "distinct_seeds", lambda *given: [0, 1])
    monkeypatch.setattr(lake, "lake_of", lambda recipe: lambda: None)
    recipe = SimpleNamespace(play=SimpleNamespace(held_out=2), evaluation=SimpleNamespace(first_seed=0))
    own = object.__new__(LakePlanning)
    own.recipe = recipe  # type: ignore[assignment]

    class Right:
        """Knows where `Up` leads from `a`, and that `Up` changes nothing elsewhere."""

        def predict(self, pairs: list[tuple[str, str]]) -> list[list[Imagined[str]]]:
            return [[Imagined("b" if pair == ("a", "Up") else pair[0])] for pair in pairs]

    shares = own.accuracy({"model": Right()})  # type: ignore[dict-item]
    assert shares["model"] == {"all": [0.75, 1.0], "changed": [0.5]}
    assert shares["no change"] == {"all": [0.5, 1.0], "changed": [0.0]}


def test_a_target_asks_for_its_own_cell() -> None:
    assert lake.task_of(FrozenLake(FrozenLakeConfig())) is None
    target = lake.TargetLake(FrozenLakeConfig())
    target.reset(seed=0, options={"split": "eval"})
    assert lake.task_of(target) == target.target


# The web --------------------------------------------------------------------------------------------------------------


def page(*lines: str, url: str = "http://map.org/") -> PageState:
    return PageState(url, tuple(Item(place + 1, line) for place, line in enumerate(lines)))


A, B, C = page("link 'a'"), page("link 'b'"), page("link 'c'", url="http://map.org/c")


def step(before: PageState, action: str, after: PageState, **facts: Any) -> PageTransition:
    return PageTransition("map", "Find it.", before, action, after=after, **facts)


EPISODE = [step(A, "click [1]", B, episode="1"), step(B, "click [1]", B, episode="1"),
           step(B, "stop []", B, episode="1", reward=1.0)]  # fmt: skip


def test_an_episode_is_what_its_actor_saw() -> None:
    views = browsed_pages(EPISODE)
    assert [action for _, action in views] == ["click [1]", "click [1]", "stop []"]
    assert [view.past for view, _ in views] == [(), ("click [1]",), ("click [1]", "click [1]")]
    turns = as_turns([EPISODE])
    assert turns[1]["message"] == f"click [1]\n{turns[1]['state']}" and turns[2]["reply"] == "<answer>stop []</answer>"
    other = [step(A, "click [1]", C, episode="2")]
    assert by_episode([*EPISODE, *other]) == [EPISODE, other]
    assert is_success(EPISODE) and not is_success(other) and not is_success([])
    assert not is_success([step(A, "stop []", A, reward=0.99)])


def test_predicted_pages_are_right_by_their_address_or_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    other = [step(A, "click [1]", C, episode="2"), step(C, "stop []", C, episode="2")]
    still = [step(A, "stop []", A, episode="3")]
    monkeypatch.setattr(web, "record_episodes", lambda *given: (None, [EPISODE, other, still]))
    monkeypatch.setattr(web, "look_up_pages", lambda lookup: lookup)
    own = object.__new__(WebPlanning)
    own.recipe = SimpleNamespace(play=SimpleNamespace(temperature=0.5), seed=0)  # type: ignore[assignment]
    own.__dict__["tasks"], own.number, own.policy = [0], 0, lambda temperature: None  # type: ignore[method-assign]
    truth = {(case.state, case.action): case.after for case in EPISODE}
    answers: Any = lambda cases: [truth.get((case.state, case.action), B) for case in cases]  # noqa: E731
    shares = own.accuracy(answers, lambda cases: [None] * len(cases))  # type: ignore[arg-type]
    # Of the first episode's two steps one changes the page; the second's step leads to B here, and to C in truth. A
    # state that is left twice is answered by the last of its steps.
    assert shares["no change"] == {"all": [0.5, 0.0, None], "changed": [0.0, 0.0, None]}
    assert shares["model"] == {"all": [1.0, 0.0, None], "changed": [1.0, 0.0, None]}
    assert shares["lookup"] == {"all": [0.0, 0.0, None], "changed": [0.0, 0.0, None]}
    assert web.predict_no_change(EPISODE) == [A, B, B]  # type: ignore[arg-type]


# Physics --------------------------------------------------------------------------------------------------------------

RECIPE = load("plan/physics", ["preset=smoke"], PlanPhysicsRecipe)


def test_a_goal_is_worth_one_and_another_target_makes_it_worthless() -> None:
    own = object.__new__(PhysicsPlanning)
    own.recipe, own.contexts = RECIPE, {}
    world = own.make_world(physics.TargetRoom)
    seed = next(seed for seed in range(50) if own._has_target(seed))
    world.reset(seed=seed, options={"split": "eval"})
    state, told = own.observe(world), own.observe_told(world)
    goal, target = read_tiles(state.text).glyphs.index(physics.TARGET), world.target
    assert read_tiles(told.text).glyphs.index(physics.TARGET) == target != goal
    assert Counter(read_tiles(told.text).glyphs)[physics.TARGET] == 1 and physics.task_of(world) == target

    def judged(walker: int, wanted: int | None) -> tuple[float, bool]:
        tiles = read_tiles(state.text)._replace(walker=walker)
        found = room_rule(PhysicsSituation((), tiles.text, ""), wanted)
        return found.value, found.done

    assert judged(goal, None) == (1.0, True) and judged(target, None) == (0.0, False)
    assert judged(goal, target) == (-1.0, True) and judged(target, target) == (1.0, True)


def test_decisions_lie_on_shortest_ways_and_are_pure() -> None:
    drawn = [draw_decision(3, number, RECIPE) for number in range(6)]
    assert drawn == [draw_decision(3, number, RECIPE) for number in range(6)]
    assert drawn != [draw_decision(4, number, RECIPE) for number in range(6)]
    for state, way, word in drawn:
        assert word in WORDS and way in DISPLACEMENTS and state.text
        assert sum(len(room.tries) for room in state.context) == max(RECIPE.data.context)


def test_a_policy_reads_how_far_the_goal_is() -> None:
    room = ". . . . *\n. . . . .\n. . . . .\nA . . @ .\n. . . . .\n. none"
    tiles = read_tiles(room)
    assert physics.with_goal(tiles) == "U . . R . | D . | L . . none * UUU R"
    assert physics.with_goal(tiles._replace(walker=tiles.glyphs.index(physics.TARGET))).endswith("* 0 0")


def test_a_decision_says_where_its_word_leads_and_is_read_by_its_word() -> None:
    led_there = Counter[bool]()
    for number in range(40):
        state, way, word = draw_decision(3, number, RECIPE)
        for said in WORDS:
            tried = {after for room in state.context for other, after in room.tries if other == said}
            led_there[said == word] += way in tried
    assert led_there[True] > 4 * led_there[False] / 3  # of one word, and of the three others
    assert (read_word(" R zo"), read_word(" zo\n"), read_word(" zo R"), read_word("")) == ("zo", "zo", None, None)


def test_answers_on_physics_are_counted_by_their_rules() -> None:
    cases: Any = [SimpleNamespace(rules=rules, after=after) for rules, after in
                  (("p", "x"), ("p", STAYED), ("p", "y"), ("q", STAYED))]  # fmt: skip
    own = object.__new__(PhysicsPlanning)
    predictor = SimpleNamespace(metrics=lambda text, case: {"exact": float(text == case.after)})
    own.task = SimpleNamespace(test=(None, {physics.FULL: cases}), predictor=predictor)  # type: ignore[assignment]
    found = own.accuracy(lambda asked: ["x", STAYED, "x", "x"])
    assert found == {"all": [pytest.approx(2 / 3), 0.0], "changed": [0.5, None]}
    own.__dict__["starts"] = [SimpleNamespace(context=name) for name in "abc"]
    assert own.other == {"a": "b", "b": "c", "c": "a"}


# Text games -----------------------------------------------------------------------------------------------------------


def test_a_policy_learns_the_plans_of_the_first_levels_of_each_game(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [SimpleNamespace(id=name, on_plan=planned) for name, planned in (
        ("bake/train-0/1", True), ("bake/train-0/2", False), ("bake/train-2/1", True), ("wash/train-1/4", True),
        ("other/train-0/1", True))]  # fmt: skip

    class Train(list):  # type: ignore[type-arg]
        rows = property(lambda self: list(self))

    monkeypatch.setattr(textgame, "open_data", lambda data, run: SimpleNamespace(train=Train(rows)))
    own = object.__new__(TextGamePlanning)
    own.recipe = SimpleNamespace(demonstrations=2, data=SimpleNamespace(trained=["bake", "wash"]),  # type: ignore[assignment]
                                 play=SimpleNamespace(levels=7, first_seed=3))  # fmt: skip
    own.run = None  # type: ignore[assignment]
    assert [row.id for row in own.demonstrations] == ["bake/train-0/1", "wash/train-1/4"]
    own.task = SimpleNamespace(data=SimpleNamespace(train=list(range(1250))))  # type: ignore[assignment]
    assert own._some_states() == list(range(0, 1250, 2))
    own.task.data.train = [1, 2]  # type: ignore[assignment]
    assert own._some_states() == [1, 2]
    own.__dict__["makers"] = {"bake": partial(dict), "wash": partial(dict)}
    asked: list[Any] = []
    monkeypatch.setattr(
        textgame, "distinct_seeds", lambda maker, split, count, first: asked.append((split, count, first))
    )
    assert list(own.levels) == ["bake", "wash"] and asked == [("eval", 3, 3)] * 2


def test_a_text_game_has_a_stage_of_rl_where_it_has_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textgame, "TextGameTask", lambda recipe, run: SimpleNamespace(first_stages=("data", "sft")))
    for steps, stages in ((0, ["data", "sft", "policy"]), (2, ["data", "sft", "rl", "policy"])):
        recipe: Any = SimpleNamespace(rl=SimpleNamespace(steps=steps))
        own = TextGamePlanning(recipe, None, 0)  # type: ignore[arg-type]
        assert own.stages == stages and own.name_stage("sft") == "sft"


def test_a_text_game_is_measured_by_success_and_by_its_share_of_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes: Any = [
        SimpleNamespace(success=True, info={"turns": [1, 2]}, sampled_tokens=6, terms={"world": [0.5, 0.25]})
    ]
    own = object.__new__(TextGamePlanning)
    monkeypatch.setattr(own, "play_levels", lambda policy: episodes)
    assert own.measure(SimpleNamespace()) == {"success": [1.0], "tokens": 3.0, "score": [0.75]}  # type: ignore[arg-type]


def test_a_tokenizer_of_lakes_sees_every_action_often_and_512_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(lakes.languages, "create_tiny", lambda model, seen, seed, tags: texts.extend(seen))
    own = object.__new__(LakePlanning)
    own.recipe, own.number = load("plan/frozen-lake", ["preset=smoke"]), 0
    own.tiny("policy", [SimpleNamespace(state="s", action="Up", after="n")] * 600)  # type: ignore[list-item]
    counts = Counter(texts)
    assert all(counts[f"{word}\n"] == 64 for word in ("Left", "Down", "Right", "Up")) and counts["n"] == 512
    assert counts["s\nUp"] == 512 and counts[lakes.languages.ROLES] == 64
