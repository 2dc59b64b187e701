"""Both planners search: they look as deep as they may, ask every pair once, keep to budgets and survive any model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oneiro.agents.planning import base
from oneiro.agents.planning.base import Judged, PlannerSettings, Proposed, Root
from oneiro.agents.planning.beam import BeamSearch
from oneiro.agents.planning.mpc import ModelPredictiveControl
from oneiro.agents.planning.policy import make_planner
from oneiro.agents.planning.values import RuleValue
from oneiro.tasks.base import Cached, Dynamics, Flaw, Imagined, Malformed, Shuffled
from tests.agents.planning.maze import MAZE, PROPOSE, ROOT, START, TOKENS, VALUE, WAY, Maze, rule

MPC = {"name": "mpc", "sequences": 1500, "iterations": 4, "elites": 6, "keep": 0.7}


def beam(model: Dynamics[Any], **settings: Any) -> BeamSearch[Any]:
    return BeamSearch(model, PROPOSE, VALUE, PlannerSettings(**settings))


@pytest.mark.parametrize("settings", [{"name": "beam"}, MPC], ids=["beam", "mpc"])
def test_depth_finds_what_one_step_cannot(settings: dict[str, Any]) -> None:
    near = make_planner(Maze(), PROPOSE, VALUE, PlannerSettings(**settings, depth=1)).plan([ROOT])[0]
    assert near.value == 0 and all(candidate.value == 0 for candidate in near.candidates)
    far = make_planner(Maze(), PROPOSE, VALUE, PlannerSettings(**settings, depth=5)).plan([ROOT])[0]
    assert far.action == "right" and far.plan == WAY
    assert far.value == pytest.approx(0.95**5)
    assert far.ended in ("goal", "depth")
    assert beam(Maze(), depth=4).plan([ROOT])[0].value == 0  # the way has five moves


def test_a_task_names_another_goal_for_the_same_model() -> None:
    planner = beam(Maze(), depth=6)
    decisions = planner.plan([ROOT, Root(START, (1, 2)), Root((0, 2), START)])
    assert [decision.plan for decision in decisions] == [WAY, ("right", "right", "down"), ("left", "left")]


def test_every_pair_is_asked_once_and_each_depth_is_one_call() -> None:
    model = Maze()
    planner = beam(model, depth=5)
    planner.plan([ROOT, Root((0, 1))])
    assert len(model.asked) == len(set(model.asked))
    assert model.calls <= 5
    calls, asked = model.calls, len(model.asked)
    again = planner.plan([ROOT])[0]
    assert (model.calls, len(model.asked)) == (calls, asked)
    assert again.tokens == 0 and again.predictions == 0 and again.plan == WAY


def test_width_bounds_what_is_expanded() -> None:
    narrow, wide = Maze(), Maze()
    beam(narrow, depth=2, width=1).plan([Root((0, 2))])
    beam(wide, depth=2, width=2).plan([Root((0, 2))])
    # Two new states lie beside the first one; four actions are tried in each that is expanded.
    assert (len(narrow.asked), len(wide.asked)) == (8, 12)


def test_tokens_end_a_search_and_the_best_so_far_is_returned() -> None:
    free = beam(Maze(), depth=5).plan([ROOT])[0]
    model = Maze()
    found = beam(model, depth=5, max_tokens=5 * TOKENS).plan([ROOT])[0]
    assert found.ended == "tokens" and found.tokens <= 5 * TOKENS + TOKENS
    assert found.tokens < free.tokens and found.action is not None
    # What is known by then is used: a goal one move away is found with the tokens of a single depth.
    near = beam(Maze(), depth=5, max_tokens=4 * TOKENS).plan([Root((1, 3))])[0]
    assert near.action == "down" and near.value == pytest.approx(0.95)


def test_the_budget_is_each_decisions_own() -> None:
    planner = beam(Maze(), depth=8, max_tokens=7 * TOKENS)
    one, other = planner.plan([ROOT, Root((1, 3))])
    assert one.ended == "tokens" and other.ended == "goal"


@pytest.mark.parametrize("settings", [{"name": "beam"}, MPC], ids=["beam", "mpc"])
def test_an_unreadable_prediction_ends_its_branch_only(settings: dict[str, Any]) -> None:
    cut = Maze(broken=[((0, 2), "down")])
    found = make_planner(cut, PROPOSE, VALUE, PlannerSettings(**settings, depth=8)).plan([ROOT])[0]
    assert found.value == 0  # no way is left
    first = Maze(broken=[(START, "right")])
    found = make_planner(first, PROPOSE, VALUE, PlannerSettings(**settings, depth=8)).plan([ROOT])[0]
    worst = next(candidate for candidate in found.candidates if candidate.action == "right")
    assert worst.predicted is None and worst.value == pytest.approx(-0.95)
    assert found.action != "right"


@pytest.mark.parametrize("name", ["beam", "mpc"])
def test_a_model_of_garbage_and_a_rule_that_raises_never_raise(name: str) -> None:
    class Garbage(Maze):
        def predict(self, pairs: Sequence[Any], outcomes: int = 1, seed: int = 0) -> Any:
            return [[Imagined(Malformed(Flaw.BROKEN, "x" * 1000), TOKENS)] * outcomes for _ in pairs]

    def raising(state: Any, task: Any) -> Judged:
        raise KeyError(state)

    settings = PlannerSettings(name=name, depth=3)  # type: ignore[arg-type]
    assert make_planner(Garbage(), PROPOSE, VALUE, settings).plan([ROOT])[0].action is not None
    assert make_planner(Maze(), PROPOSE, RuleValue(raising), settings).plan([ROOT])[0].value == 0


@pytest.mark.parametrize("name", ["beam", "mpc"])
def test_nothing_proposed_is_no_action(name: str) -> None:
    def silent(roots: Sequence[Any], most: int, seed: int) -> list[Proposed]:
        return [Proposed((), ()) for _ in roots]

    found = make_planner(Maze(), silent, VALUE, PlannerSettings(name=name)).plan([ROOT])  # type: ignore[arg-type]
    assert found[0].action is None and found[0].candidates == []


class Slippery(Dynamics[str]):
    """`jump` reaches the goal one time in four, else a hole; `walk` reaches it for sure in two steps."""

    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        four = {("start", "jump"): ["goal", "hole", "hole", "hole"], ("start", "walk"): ["half"] * 4}
        return [[Imagined(state) for state in four.get(pair, ["goal"] * 4)[:outcomes]] for pair in pairs]


def _judge(state: str, task: Any) -> Judged:
    return {"goal": Judged(1.0, True), "hole": Judged(-1.0, True)}.get(state, Judged(0.0))


def test_outcomes_are_averaged_in_a_stochastic_world() -> None:
    def propose(roots: Sequence[Root[str]], most: int, seed: int) -> list[Proposed]:
        return [Proposed(("jump", "walk") if root.state == "start" else ("walk",), (1.0, 1.0)) for root in roots]

    def weighed(roots: Sequence[Root[str]], most: int, seed: int) -> list[Proposed]:
        return [Proposed(found.actions, (1.0,) * len(found.actions)) for found in propose(roots, most, seed)]

    value = RuleValue(_judge)
    hopeful = BeamSearch(Slippery(), weighed, value, PlannerSettings(depth=3)).plan([Root("start")])[0]
    assert hopeful.action == "jump"  # with one outcome the first is taken for the truth
    careful = BeamSearch(Slippery(), weighed, value, PlannerSettings(depth=3, outcomes=4)).plan([Root("start")])[0]
    values = {candidate.action: candidate.value for candidate in careful.candidates}
    assert values == {"jump": pytest.approx(0.95 * (1 - 3) / 4), "walk": pytest.approx(0.95**2)}
    assert careful.action == "walk"


def test_elites_make_mpc_better_than_plain_sampling() -> None:
    """With as many sequences, most of them drawn near good ones, the way of one in 4^5 is found more often."""

    def found(**settings: Any) -> float:
        planner = ModelPredictiveControl(
            Maze(), PROPOSE, RuleValue(_progress), PlannerSettings(name="mpc", depth=5, **settings)
        )
        return sum(planner.plan([ROOT], seed=seed)[0].value > 0.7 for seed in range(20))

    assert found(sequences=20, iterations=5, elites=4) > found(sequences=100, iterations=1)


def _progress(state: tuple[int, int], task: Any) -> Judged:
    """Shaped: each cell of the way is worth a little more."""
    return rule(state, task) if rule(state, task).done else Judged(0.1 * (state[0] + state[1]))


def test_a_cache_asks_once_and_a_shuffled_model_answers_for_another_state() -> None:
    inner = Maze()
    model = Cached(inner)
    model.predict([(START, "right"), (START, "right")])
    assert len(inner.asked) == 1 and model.knows(START, "right") and not model.knows(START, "right", outcomes=2)
    cells = [(row, column) for row, line in enumerate(MAZE) for column, mark in enumerate(line) if mark != "#"]
    shuffled = Shuffled(Maze(), cells)
    told = shuffled.predict([(cell, "up") for cell in cells])
    true = Maze().predict([(cell, "up") for cell in cells])
    assert told == shuffled.predict([(cell, "up") for cell in cells])
    assert sum(a == b for a, b in zip(told, true, strict=True)) < len(cells) / 2


def test_the_beam_keeps_the_states_of_the_highest_value() -> None:
    model = Maze()
    planner = BeamSearch(model, PROPOSE, RuleValue(_progress), PlannerSettings(depth=2, width=1))
    planner.plan([Root((0, 1))])
    assert {state for state, _ in model.asked} == {(0, 1), (0, 2)}  # to the right of it, not to the left


def test_sequences_that_are_worth_the_same_guide_nothing() -> None:
    model = Maze()
    settings = PlannerSettings(name="mpc", depth=3, sequences=1, iterations=40, elites=1, keep=1.0)
    ModelPredictiveControl(model, PROPOSE, VALUE, settings).plan([ROOT])
    assert len(set(model.asked)) > 6  # one sequence alone asks for three pairs


def test_proposals_count_against_the_budget_also_where_every_prediction_is_known() -> None:
    model, asked = Cached(Maze()), list[int]()
    beam(model, depth=5).plan([ROOT])

    def dear(roots: Sequence[Any], most: int, seed: int) -> list[Proposed]:
        asked.append(len(roots))
        return [Proposed(found.actions, found.weights, tokens=30) for found in PROPOSE(roots, most, seed)]

    found = BeamSearch(model, dear, VALUE, PlannerSettings(depth=5, max_tokens=50)).plan([ROOT])[0]
    assert found.ended == "tokens" and asked == [1, 1] and found.tokens == 60


def test_a_state_is_judged_once_for_each_task() -> None:
    judged: list[tuple[Any, Any]] = []

    def counted(state: Any, task: Any) -> Judged:
        judged.append((state, task))
        return rule(state, task)

    planner = BeamSearch(Maze(), PROPOSE, RuleValue(counted), PlannerSettings(depth=5))
    planner.plan([ROOT, ROOT, Root(START, (1, 2))])
    planner.plan([ROOT])
    assert len(judged) == len(set(judged)) and {task for _, task in judged} == {None, (1, 2)}


# Numbers by hand ------------------------------------------------------------------------------------------------------


def meter(roots: Sequence[Root[Any]] = (ROOT,), **settings: Any) -> base.Meter[Any]:
    return base.Meter(beam(Maze(), **settings), roots, seed=5)


def test_a_decision_is_open_up_to_its_last_token() -> None:
    own = meter([ROOT, ROOT], max_tokens=9)
    own.tokens = [8, 9]
    assert [own.open(0), own.open(1)] == [True, False] and own.ended == ["", "tokens"]
    assert meter().open(0)


def test_a_prediction_is_asked_for_where_its_mean_price_fits_into_what_is_left() -> None:
    own = meter([ROOT, ROOT], max_tokens=20)
    assert own._affordable(0) == 20  # nothing has a price yet
    own.tokens, own.predictions = [6, 4], [3, 1]  # ten tokens for four predictions
    assert own._affordable(0) == pytest.approx(14 / 2.5) and own._affordable(1) == pytest.approx(16 / 2.5)
    own.tokens = [30, 4]
    assert own._affordable(0) == 0 and meter()._affordable(0) == float("inf")
    # Two are affordable; what is known already costs nothing.
    own = meter(max_tokens=6)
    own.tokens, own.predictions = [0], [0]
    own.planner.dynamics.predict([(START, "up")])
    own.tokens, own.predictions = [2], [1]
    asked = [(0, START, action) for action in ("up", "left", "right", "down")]
    answers = own.predict(asked)
    assert [answer is not None for answer in answers] == [True, True, True, False]
    assert own.predictions == [3] and own.tokens == [2 + 2 * TOKENS]


def test_who_asks_first_pays_and_calls_have_seeds_of_their_own() -> None:
    own = meter([ROOT, ROOT], outcomes=2)
    own.predict([(1, START, "up"), (0, START, "up"), (0, START, "down")])
    assert own.predictions == [2, 2] and own.tokens == [2 * TOKENS, 2 * TOKENS]
    first = own._next_seed()
    assert len({first, own._next_seed(), own._next_seed(), base.Meter(own.planner, own.roots, 6)._next_seed()}) == 4
    priced = base.Meter(BeamSearch(Maze(), PROPOSE, lambda roots: [Judged(0.0, tokens=4)] * len(roots),
                                   PlannerSettings()), [ROOT, ROOT], 0)  # fmt: skip
    priced.value([(1, START), (0, START), (0, (0, 1))])
    assert priced.tokens == [4, 4]


def test_of_equal_values_the_heavier_is_taken_and_of_equal_weights_any() -> None:
    def best(*pairs: tuple[float, float]) -> set[int | None]:
        given = [base.Candidate(str(place), None, value, weight) for place, (value, weight) in enumerate(pairs)]
        return {base.best_of(given, np.random.default_rng(seed)) for seed in range(20)}

    assert best((0.5, 0.9), (0.7, 0.1), (0.7 - 1e-12, 0.3)) == {2}
    assert best((0.7, 0.3), (0.7, 0.3), (0.7 - 1e-6, 0.9)) == {0, 1}
    assert best() == {None}
    votes = Proposed.from_votes(Counter({"a": 1, "b": 3}), [np.zeros(2), np.zeros(3), *[np.zeros(1)] * 4], 1)
    assert votes == Proposed(("b",), (0.5,), 9)
    assert base.EveryAction(lambda state: "abc")([ROOT], 2, 0) == [Proposed(("a", "b"), (1.0, 1.0))]


class Line(Dynamics[int]):
    """Cells in a row: `+` and `-` go along it, `?` cannot be read."""

    def predict(self, pairs: Sequence[tuple[int, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[int]]]:
        return [[Imagined(self._go(*pair), 1)] * outcomes for pair in pairs]

    def _go(self, cell: int, action: str) -> int | Malformed:
        return Malformed(Flaw.SHAPE) if action == "?" else cell + {"+": 1, "-": -1}[action]


WORTH = {1: 0.5, 2: 0.2, 3: 0.8, -1: 0.6}


def on_the_line(name: str, values: dict[int, float] = WORTH, **settings: Any) -> Any:
    propose = base.EveryAction[int](lambda cell: ("+", "-", "?"))
    value = RuleValue[int](lambda cell, task: Judged(values.get(cell, 0.0)))
    chosen = {"discount": 0.5, "depth": 3, "keep": 0.0} | settings
    return make_planner(Line(), propose, value, PlannerSettings(name=name, **chosen))  # type: ignore[arg-type]


def test_a_state_is_worth_what_it_is_judged_or_its_best_discounted_future() -> None:
    (found,) = on_the_line("beam").plan([Root(0)])
    # + is worth half of cell 1: its own 0.5, or half of cell 2's max(0.2, 0.8 / 2); - half of cell -1's 0.6.
    values = {candidate.action: candidate.value for candidate in found.candidates}
    assert values == {"+": pytest.approx(0.25), "-": pytest.approx(0.3), "?": -0.5}
    assert (found.action, found.plan, found.predictions) == ("-", ("-",), 3 * 5) and found.ended == "depth"
    (far,) = on_the_line("beam", {3: 1.0}).plan([Root(0)])
    assert far.plan == ("+", "+", "+") and far.value == pytest.approx(0.125)
    # There and back and on: values go round circles until they stand.
    assert {c.action: c.value for c in far.candidates}["-"] == pytest.approx(0.5**5)
    (won,) = on_the_line("mpc", {3: 1.0}, sequences=300, iterations=1).plan([Root(0)])
    assert won.plan == ("+", "+", "+") and won.value == pytest.approx(0.125) and won.ended == "depth"


def test_a_prior_makes_a_future_worth_less_by_the_weights_on_its_way() -> None:
    def propose(roots: Sequence[Root[int]], most: int, seed: int) -> list[Proposed]:
        return [Proposed(("+", "-"), (0.64, 0.25)) for _ in roots]

    def search(width: int, **values: float) -> Any:
        worth = {int(cell): value for cell, value in values.items()}
        value = RuleValue[int](lambda cell, task: Judged(worth.get(cell, 0.0)))
        settings = PlannerSettings(depth=2, width=width, prior=0.5, discount=0.5)
        return BeamSearch(Line(), propose, value, settings).plan([Root(0)])[0]

    # + keeps half of 0.64 ** 0.5 = 0.8, - half of 0.25 ** 0.5 = 0.5; two of one kind keep the square of that.
    found = search(2, **{"1": 0.2, "2": 0.6, "-1": 0.5, "-2": 0.2})
    assert {candidate.action: candidate.value for candidate in found.candidates} == {
        "+": pytest.approx(0.4 * 0.4 * 0.6),
        "-": pytest.approx(0.25 * 0.5),
    }
    assert found.action == "-" and [candidate.weight for candidate in found.candidates] == [0.64, 0.25]
    # The one state of the front is that of the highest share times value: 0.8 * 0.38 and not 0.5 * 0.6.
    narrow = search(1, **{"1": 0.38, "2": 1.0, "-1": 0.6, "-2": 0.9})
    assert narrow.plan == ("+", "+") and narrow.value == pytest.approx(0.4 * 0.4 * 1.0)


class Letters(Dynamics[str]):
    """A state is the letters taken so far, in whatever order."""

    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        return [[Imagined("".join(sorted(state + letter)), 1)] for state, letter in pairs]


def test_shares_multiply_along_a_way_and_the_best_of_several_ways_counts() -> None:
    weights = {"": (0.64, 0.25), "a": (0.64, 0.64), "b": (0.04, 0.25), "ab": (0.04, 0.64)}
    worth = {"aa": 0.5, "ab": 0.2, "bb": 0.4, "abb": 1.0}

    def propose(roots: Sequence[Root[str]], most: int, seed: int) -> list[Proposed]:
        return [Proposed(("a", "b"), weights.get(root.state, (0.04, 0.04))) for root in roots]

    value = RuleValue[str](lambda state, task: Judged(worth.get(state, 0.0)))
    settings = PlannerSettings(depth=3, width=2, prior=0.5, discount=1.0)
    found = BeamSearch(Letters(), propose, value, settings).plan([Root("")])[0]
    # Shares: a 0.8, b 0.5, aa 0.64, bb 0.25, ab 0.64 by a and 0.1 by b. Times their values 0.32, 0.1 and 0.128: aa and
    # ab are expanded. By the last action alone bb would have 0.2 and ab 0.16, and by its second way ab would have 0.02.
    assert found.plan == ("a", "b", "b") and found.value == pytest.approx(0.8**3)


def test_a_sequence_is_worth_the_best_on_its_way_and_a_candidate_the_best_or_the_mean_of_its_sequences() -> None:
    (found,) = on_the_line("mpc", sequences=300, iterations=1).plan([Root(0)])
    values = {candidate.action: (candidate.value, candidate.predicted) for candidate in found.candidates}
    assert values == {"+": (pytest.approx(0.25), "1"), "-": (pytest.approx(0.3), "-1"), "?": (-0.5, None)}
    (mean,) = on_the_line("mpc", sequences=300, iterations=1, outcomes=2, depth=1).plan([Root(0)])
    assert {c.action: c.value for c in mean.candidates} == {
        "+": pytest.approx(0.25),
        "-": pytest.approx(0.3),
        "?": -0.5,
    }
    assert mean.ended == "depth" and [c.weight for c in mean.candidates] == [1.0] * 3
    (near,) = on_the_line("mpc", {1: 1.0}, sequences=30, iterations=1).plan([Root(0)])
    assert near.ended == "goal" and near.value == 0.5


def test_actions_come_from_elites_or_by_the_weights_of_a_proposal() -> None:
    planner = on_the_line("mpc", keep=0.5)
    elites = [[SimpleNamespace(actions=["+", "-"]), SimpleNamespace(actions=["-"])]]
    alive: Any = [SimpleNamespace(root=0, state=0) for _ in range(4)]

    class Draws:
        """Whether an action is kept, and which one it is."""

        def random(self, shape: tuple[int, int]) -> np.ndarray:
            return np.array([[0.1, 0.49, 0.5, 0.9], [0.4, 0.6, 0.3, 0.999]])

    weights: list[dict[str, float]] = [{}]
    own = base.Meter(planner, [Root(0)], 0)
    assert planner._actions(own, alive, 0, elites, weights, Draws()) == ["+", "-", "+", "?"]
    assert weights == [{"+": 1.0, "-": 1.0, "?": 1.0}]
    # One elite is long enough; later depths add nothing to the weights of the first action.
    assert planner._actions(own, alive, 1, elites, [{}], Draws())[:2] == ["-", "-"]
