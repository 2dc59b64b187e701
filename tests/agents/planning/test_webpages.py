"""Planning on web pages: the task's check as value, the true web as a model, dreams in a page model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from oneiro.agents.evaluate import evaluate_agent
from oneiro.agents.learners.pages import browsed_pages
from oneiro.agents.linear import LinearPolicy
from oneiro.agents.planning.base import PlannerSettings, Proposed, Root
from oneiro.agents.planning.beam import BeamSearch
from oneiro.agents.planning.loading import load_planner
from oneiro.agents.planning.page_values import Lesson, PageValue, lessons_of
from oneiro.agents.planning.values import RuleValue
from oneiro.agents.planning.webpages import (
    PolicyRanking,
    PolicyVotes,
    address_rule,
    objective_first,
    observe,
    offered_in,
    page_goal,
)
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import SamplingSettings
from oneiro.tasks.base import Malformed
from oneiro.tasks.webpage.lookup import PageLookup
from oneiro.tasks.webpage.model import (
    BrowsedPage,
    PageDynamics,
    Remembered,
    TrueWeb,
    WebPageMetadata,
    look_up_pages,
    shuffle_pages,
)
from oneiro.tasks.webpage.predictor import WebPagePredictorConfig
from oneiro.tasks.webpage.record import RecordingWeb
from oneiro.tasks.webpage.state import PageSituation, PageState, PageTransition
from oneiro.tasks.webpage.world import DreamedWeb
from oneiro_web.diff import Item
from oneiro_web.env import WebConfig
from oneiro_web.plugin import WebWorld
from oneiro_web.tasks import Evaluation
from tests.conftest import make_tiny

CONFIG = WebConfig(templates=("map/show-way",), max_actions=8)
GOAL = Evaluation(
    eval_types=("url_match",),
    reference_url="http://openstreetmap.org/directions?from=Mill+Park&to=Red+Fig&mode=foot",
    url_note="GOLD in PRED",
)


@pytest.fixture(scope="module")
def played() -> list[PageTransition]:
    """The oracle's steps at one task."""
    world = RecordingWeb(CONFIG)
    world.reset(seed=3, options={"split": "eval"})
    while not world.over:
        world.step(world.oracle() or "")
    world.close()
    return world.steps


@pytest.fixture
def world() -> Iterator[WebWorld]:
    found = WebWorld(CONFIG)
    found.reset(seed=3, options={"split": "eval"})
    yield found
    found.close()


def at(url: str, *lines: str, answer: str | None = None) -> BrowsedPage:
    items = tuple(Item(number, line, 0) for number, line in enumerate(lines, start=1))
    return BrowsedPage("map", "Show the way.", PageState(url, items), answer=answer)


def test_a_page_is_worth_the_share_of_the_address_that_is_there() -> None:
    base = "http://openstreetmap.org"
    assert address_rule(at(f"{base}/"), GOAL).value == 0.0
    assert address_rule(at(f"{base}/directions"), GOAL).value == pytest.approx(0.9 * 1 / 4)
    filled = at(f"{base}/directions", "textbox 'From'", "StaticText 'Mill Park'", "combobox 'Travel by'")
    assert address_rule(filled, GOAL).value == pytest.approx(0.9 * 1.5 / 4)  # a value in a field counts half
    assert address_rule(at(f"{base}/directions?from=Mill+Park&to=Red+Fig&mode=car"), GOAL).value == pytest.approx(
        0.9 * 3 / 4
    )
    right = f"{base}/directions?from=Mill+Park&to=Red+Fig&mode=foot"
    assert address_rule(at(right), GOAL).value == pytest.approx(0.9)
    assert not address_rule(at(right), GOAL).done
    assert address_rule(at("http://reddit.com/directions"), GOAL).value == 0.0
    assert address_rule(at(f"{base}/directions/x"), GOAL).value == 0.0  # past the page, not on the way to it


def test_a_stop_is_worth_what_the_task_says_of_the_address() -> None:
    right = at("http://openstreetmap.org/directions?mode=foot&from=Mill+Park&to=Red+Fig", answer="")
    wrong = at("http://openstreetmap.org/directions?from=Mill+Park&to=Red+Fig&mode=car", answer="")
    assert (address_rule(right, GOAL).value, address_rule(wrong, GOAL).value) == (1.0, 0.0)
    assert address_rule(right, GOAL).done and address_rule(wrong, GOAL).done
    assert address_rule(right, None).value == 0.0  # a task that asks for no page tells nothing


def test_the_true_web_as_a_model_says_what_happens_whatever_the_order_of_questions(
    played: list[PageTransition], world: WebWorld
) -> None:
    dynamics = TrueWeb(lambda: WebWorld(CONFIG.model_copy(update={"max_actions": 30})))
    states = [observe(world)]
    for case in played[:-1]:
        states.append(states[-1].after(case.action, case.after))
    pairs = [(state, case.action) for state, case in zip(states, played[:-1], strict=False)]
    for asked in (pairs, pairs[::-1], [pairs[1], pairs[0], pairs[1]]):
        for (state, action), (told,) in zip(asked, dynamics.predict(asked), strict=True):
            true = next(case for case in played if case.action == action and case.state == state.page)
            assert not isinstance(told.state, Malformed) and told.state.page == true.after
            assert told.state.past == (*state.past, action)
    assert observe(world) == states[0]  # nobody stepped the world that is played
    dynamics.close()


def test_stops_and_nonsense_need_no_prediction() -> None:
    def never(cases: Sequence[PageSituation]) -> list[PageState | None]:
        raise AssertionError("asked")

    dynamics, state = PageDynamics(never), at("http://openstreetmap.org/")
    (stopped,), (bad,) = dynamics.predict([(state, "stop [42]"), (state, "fly")])
    assert isinstance(stopped.state, BrowsedPage) and stopped.state.answer == "42" and stopped.tokens == 0
    assert isinstance(bad.state, Malformed)
    ((over,),) = dynamics.predict([(stopped.state, "click [1]")])
    assert isinstance(over.state, Malformed)


def test_search_with_true_pages_finds_the_way_where_the_proposer_does_not_know_which_action_is_right(
    played: list[PageTransition], world: WebWorld
) -> None:
    known = {case.state: case.action for case in played}

    def propose(roots: Sequence[Root[BrowsedPage]], most: int, seed: int) -> list[Proposed]:
        found = []
        for root in roots:
            right = known.get(root.state.page)
            actions = ("click [2]", "click [8]", *([right] if right else []))
            found.append(Proposed(actions, (1.0,) * len(actions)))
        return found

    dynamics = TrueWeb(lambda: WebWorld(CONFIG.model_copy(update={"max_actions": 30})))
    planner = BeamSearch(dynamics, propose, RuleValue(address_rule), PlannerSettings(depth=2, width=3, proposals=3))
    assert page_goal(world) is not None
    while not world.over:
        decision = planner.plan([Root(observe(world), page_goal(world))])[0]
        assert decision.action is not None
        _, reward, *_ = world.step(decision.action)
    assert reward == 1.0
    dynamics.close()


def replayed(played: list[PageTransition]) -> PageDynamics:
    known = {(case.state, case.action): case.after for case in played}
    return PageDynamics(lambda cases: [known.get((case.state, case.action)) for case in cases])


@pytest.fixture(scope="module")
def value() -> PageValue:
    """What the oracle's steps and rewards at other tasks, of other contents, teach about pages."""
    world, lessons = RecordingWeb(CONFIG), list[Lesson]()
    for seed in range(6):
        world.reset(seed=seed, options={"split": "train"})
        while not world.over:
            world.step(world.oracle() or "")
        lessons += lessons_of(browsed_pages(world.steps), True)
    world.close()
    return PageValue(lessons)


def test_a_dream_of_true_pages_ends_as_the_truth_did_though_nobody_knows_the_address(
    played: list[PageTransition], value: PageValue
) -> None:
    def succeeds(page: BrowsedPage) -> bool:
        assert page.task is None  # else it could be asked for the address
        return value([Root(page)])[0].value >= 0.5

    dream = DreamedWeb(replayed(played).pages, succeeds, CONFIG)
    dream.reset(seed=3, options={"split": "eval"})
    rewards: list[float] = []
    for case in played:
        assert dream.state == case.state and observe(dream).past == tuple(one.action for one in played[: len(rewards)])
        rewards.append(dream.step(case.action)[1])
    assert rewards == [case.reward for case in played] and rewards[-1] == 1.0
    dream.reset(seed=3, options={"split": "eval"})
    dream.step(played[0].action)
    assert dream.step("stop []")[1:3] == (0.0, True)  # too early
    dream.close()


def test_a_dream_grades_stops_and_the_end_of_the_budget_on_the_predicted_page(played: list[PageTransition]) -> None:
    graded: list[BrowsedPage] = []

    def succeeds(page: BrowsedPage) -> bool:
        graded.append(page)
        return page.page == played[-1].state

    dream = DreamedWeb(lambda cases: [None for _ in cases], succeeds, CONFIG)
    dream.reset(seed=3, options={"split": "eval"})
    _, _, _, _, info = dream.step(played[0].action)
    assert info["malformed"] and not info["effective"] and dream.state == played[0].state
    assert dream.step("stop [42]")[1:3] == (0.0, True)
    assert [(one.page, one.answer, one.past) for one in graded] == [(played[0].state, "42", (played[0].action,))]
    # The last action of the budget is graded where it leads, as in the true web.
    count = len(played) - 1
    short = DreamedWeb(replayed(played).pages, succeeds, CONFIG.model_copy(update={"max_actions": count}))
    short.reset(seed=3, options={"split": "eval"})
    found = [short.step(case.action) for case in played[:count]]
    assert [one[1] for one in found] == [0.0] * (count - 1) + [1.0] and found[-1][4]["success"]
    assert len(graded) == 2 and graded[-1].answer == ""
    for one in (dream, short):
        one.close()


def test_what_is_known_is_not_predicted_and_anything_else_is_predicted_once(played: list[PageTransition]) -> None:
    asked: list[PageSituation] = []

    def predict(cases: Sequence[PageSituation]) -> list[PageState | None]:
        asked.extend(cases)
        return [None for _ in cases]

    first, second = played[0].situation(), played[1].situation()
    pages = Remembered(predict, {first: played[0].after})
    assert pages([first, second, second]) == [played[0].after, None, None] and pages([second]) == [None]
    assert asked == [second]


def test_memory_answers_with_the_nearest_step_and_the_control_with_another_page(played: list[PageTransition]) -> None:
    lookup = look_up_pages(PageLookup(played, 0))
    assert lookup([case.situation() for case in played[:-1]]) == [case.after for case in played[:-1]]
    asked: list[PageState] = []

    def note(cases: Sequence[PageSituation]) -> list[PageState | None]:
        asked.extend(case.state for case in cases)
        return [None for _ in cases]

    pool = [case.state for case in played]
    control = shuffle_pages(note, pool, 0)
    control([case.situation() for case in played])
    control([case.situation() for case in played])
    half = len(asked) // 2
    assert asked[:half] == asked[half:]  # always the same other page
    assert all(other != case.state for other, case in zip(asked, played, strict=False))


def test_proposals_are_the_policys_likeliest_and_votes_its_most_frequent(world: WebWorld) -> None:
    policy, root = LinearPolicy(), Root(observe(world))
    offered = offered_in(root.state)
    wanted = offered.actions.index("click [7]")
    policy.nudge(offered, wanted, -1.0, 3.0)
    (ranked,) = PolicyRanking(policy)([root], 3, 0)
    assert ranked.actions[0] == "click [7]" and ranked.tokens == 3
    assert list(ranked.weights) == sorted(ranked.weights, reverse=True)
    (likely,) = PolicyRanking(policy, least=1.0)([root], 3, 0)
    assert likely.actions == ("click [7]",) and likely.tokens == 1  # nothing else is as likely
    (voted,) = PolicyVotes(policy, 50)([root], 1, 0)
    assert voted.actions == ("click [7]",) and voted.tokens == 50
    (first,) = objective_first([root], 4, 0)
    assert first.actions[0] == "click [7]"  # 'Directions' stands in the objective


def test_a_language_model_that_predicts_pages_is_searched_by_its_folder(tmp_path: Path) -> None:
    language = make_tiny()
    task, sampling = WebPagePredictorConfig(brief=True, lines=8), SamplingSettings(max_tokens=6)
    WebPageMetadata(task=task, sampling=sampling).write(language)
    folder = str(language.save(tmp_path / "pages"))
    settings = {"templates": ["map/show-way"], "max_actions": 2}
    planner = PlannerSettings(depth=1, proposals=2)
    loaded = load_planner(folder, "web", settings, planner)
    assert loaded.dialogue.max_turns == 2
    assert not loaded.dialogue.world_model and not loaded.policy.predicts  # it answers with an action and no page
    table = evaluate_agent("web", folder, levels=1, samples=1, settings=settings, plan=planner)
    assert [str(row[0].value) for row in table.rows][1].endswith("beam depth 1")
    with pytest.raises(OneiroError, match="give --world web"):
        evaluate_agent("frozen-lake", folder, plan=planner)
