"""Using a predictor for more than one step: how long it stays with the truth, and plans that are found inside it.

A predictor here is any function from situations to answers; what it predicts becomes the next situation. The steps of
one recorded plan of ByteSized32 stand partly in train and partly in test, so a simulation goes through both; the note
of the table says how many of its steps the model may have been taught.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oneiro.runtime import seeds
from oneiro.tasks.base import Malformed
from oneiro.tasks.textgame.accuracy import Tally
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.worlds.textgame.crawl import record
from oneiro.worlds.textgame.dataset import Dataset, open_dataset, splits
from oneiro.worlds.textgame.game import GameRules, Verb
from oneiro.worlds.textgame.games import game_named
from oneiro.worlds.textgame.scene import Scene, Thing, is_points
from oneiro.worlds.textgame.state import Score, Situation, State, Transition, edits, same, same_state

Predict = Callable[[Sequence[Situation]], Sequence[str]]
"""Answers to a batch of situations."""
Candidates = Callable[[Situation], Iterable[str]]
"""Commands worth imagining in a situation."""


@dataclass(frozen=True, slots=True)
class TrueRollout:
    """A true course of a game: where it starts, what is done, and the state and score after each command."""

    start: Situation
    commands: tuple[str, ...]
    truth: tuple[tuple[State, Score], ...]

    @classmethod
    def play(cls, game: GameRules, start: Scene, commands: Sequence[str]) -> TrueRollout:
        scenes = [start]
        for command in commands:
            scenes.append(game.step(scenes[-1], command).after)
        truth = tuple((scene.state(), scene.score_json()) for scene in scenes[1:])
        return cls(game.situation(start), tuple(commands), truth)

    @classmethod
    def from_steps(cls, steps: Sequence[Transition]) -> TrueRollout:
        """Recorded steps, each of which starts where the one before it ended."""
        first = steps[0]
        start = Situation(
            game=first.game, task=first.task, state=first.state, score=first.score, action="", uuid_base=first.uuid_base
        )
        return cls(start, tuple(row.action for row in steps), tuple((row.after, row.score_after) for row in steps))


def recorded_plans(rows: Iterable[Transition]) -> list[list[Transition]]:
    """The winning plans among recorded steps, in the order of their ids.

    Steps of one game that are on its plan are taken together for as long as each starts where the last one ended;
    recordings that left the plan in between give several pieces.
    """
    plans: list[list[Transition]] = []
    for row in sorted((row for row in rows if row.on_plan), key=lambda row: (row.game, _split_numbers(row.id))):
        last = plans[-1][-1] if plans else None
        follows = last is not None and last.game == row.game and same(last.score_after, row.score)
        if last is not None and follows and same_state(last.after, row.state):
            plans[-1].append(row)
        else:
            plans.append([row])
    return plans


def _split_numbers(id_: str) -> list[tuple[int, str]]:
    """An id in parts that sort its numbers by their size."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"[0-9]+|[^0-9]+", id_)]


def imagine(task: TextGamePredictor, situation: Situation, text: str) -> Situation | None:
    """The situation after a predicted step, still without a command; None where the answer cannot be read.

    The UUID base moves past every object the prediction brings in.
    """
    prediction = task.parse(text, situation)
    if isinstance(prediction, Malformed) or prediction.score is None:
        return None
    # A second imagined creation must not take the number of the first.
    base = max([situation.uuid_base, *(thing["uuid"] + 1 for thing in prediction.state)])
    return replace(situation, state=prediction.state, score=prediction.score, action="", uuid_base=base)


def accuracy_by_depth(
    task: TextGamePredictor, predict: Predict, trajectories: Sequence[TrueRollout], depth: int
) -> list[dict[str, Any]]:
    """Let the predictor simulate whole trajectories on its own predictions.

    For each depth: `right`, the share of trajectories whose predicted state and score equal the true ones there, and
    `unbroken`, the share that have been right at every step so far; each with its cases and interval.
    """
    imagined: list[Situation | None] = [course.start for course in trajectories]
    unbroken = [True] * len(trajectories)
    rows = []
    for step in range(depth):
        active = [i for i, course in enumerate(trajectories) if step < len(course.commands)]
        questions = {
            i: replace(now, action=trajectories[i].commands[step]) for i in active if (now := imagined[i]) is not None
        }
        answers = dict(zip(questions, predict(list(questions.values())) if questions else (), strict=True))
        right, whole = Tally(), Tally()
        for i in active:
            # What could not be read once is wrong at every later depth: there is no state to go on from.
            imagined[i] = imagine(task, questions[i], answers[i]) if i in questions else None
            correct = _agrees(imagined[i], *trajectories[i].truth[step])
            unbroken[i] = unbroken[i] and correct
            right.add(correct)
            whole.add(unbroken[i])
        if active:
            rows.append({"depth": step + 1, "right": right.table(), "unbroken": whole.table()})
    return rows


def _agrees(imagined: Situation | None, state: State, score: Score) -> bool:
    return imagined is not None and same(imagined.score, score) and not edits(state, imagined.state)


def search_in_model(
    task: TextGamePredictor,
    predict: Predict,
    start: Situation,
    candidates: Candidates,
    *,
    breadth: int = 8,
    depth: int = 12,
) -> list[str] | None:
    """A plan that wins in the predictor's eyes, or None.

    Breadth-limited search: at each depth every candidate command is imagined in every kept situation, and the `breadth`
    situations of the highest predicted score are kept, earlier found ones first.
    """
    kept: list[tuple[Situation, list[str]]] = [(start, [])]
    seen = {situation_key(start)}
    for _ in range(depth):
        steps = [(replace(now, action=command), plan) for now, plan in kept for command in candidates(now)]
        answers = predict([situation for situation, _ in steps]) if steps else ()
        fresh: list[tuple[Situation, list[str]]] = []
        for (situation, plan), text in zip(steps, answers, strict=True):
            there = imagine(task, situation, text)
            if there is None:
                continue
            if there.score.get("gameWon") is True:
                return [*plan, situation.action]
            # A lost game goes nowhere, and a state that was reached before goes nowhere new.
            if there.score.get("gameOver") is not True and (key := situation_key(there)) not in seen:
                seen.add(key)
                fresh.append((there, [*plan, situation.action]))
        # The sort is stable: of equal scores the earlier ones stay.
        kept = sorted(fresh, key=lambda entry: -_points(entry[0]))[:breadth]
    return None


def possible(game: GameRules) -> Candidates:
    """The commands that a game understands in a predicted situation, that can be done and that do more than look; none
    where the prediction makes no sense.
    """

    def commands(situation: Situation) -> list[str]:
        scene = game.scene_of(situation)
        if scene is None:
            return []
        return [verb.command(*things) for verb, things in game.commands(scene) if _can(verb, scene, things)]

    return commands


def _can(verb: Verb, scene: Scene, things: Sequence[Thing]) -> bool:
    if verb.pattern in ("look", "examine {}"):
        return False
    try:
        return not verb.check(scene, *things)
    except Exception:  # an imagined scene may lack what the game's rules rely on
        return False


def plan_in_model(
    task: TextGamePredictor, predict: Predict, levels: Iterable[tuple[GameRules, Scene]], *, breadth: int, depth: int
) -> dict[str, Any]:
    """Search a winning plan for each level inside the predictor: how many are found, and how many win the true game."""
    planned, won = Tally(), Tally()
    for game, start in levels:
        plan = search_in_model(task, predict, game.situation(start), possible(game), breadth=breadth, depth=depth)
        planned.add(plan is not None)
        won.add(plan is not None and wins(game, start, plan))
    return {"found": planned.table(), "won": won.table()}


def true_predictor(task: TextGamePredictor) -> Predict:
    """The games themselves as a predictor: what depth and planning reach where every prediction is right."""

    def answer(situation: Situation) -> str:
        game = game_named(situation.game)
        scene = game.scene_of(situation)
        try:
            return task.perfect(record(game, scene, situation.action, "", "eval")) if scene is not None else ""
        except Exception:  # the command does to an imagined thing what it was never meant for
            return ""

    return lambda situations: [answer(situation) for situation in situations]


def recorded_predictor(task: TextGamePredictor, steps: Iterable[Transition]) -> Predict:
    """The true answers to recorded steps; anything else cannot be answered."""
    known = {(situation_key(row), row.game, row.action): task.perfect(row) for row in steps}
    return lambda situations: [known.get((situation_key(now), now.game, now.action), "") for now in situations]


def _points(situation: Situation) -> float:
    score: Any = situation.score.get("score")
    return float(score) if is_points(score) else 0.0


def situation_key(situation: Situation) -> str:
    """Equal for situations that differ only in the order of objects and contents."""
    things = [{**thing, "contains": sorted(thing.get("contains", []))} for thing in situation.state]
    return json.dumps([sorted(things, key=lambda thing: thing["uuid"]), situation.score], sort_keys=True)


def wins(game: GameRules, scene: Scene, plan: Sequence[str]) -> bool:
    for command in plan:
        scene = game.step(scene, command).after
    return scene.won


TRAIN = "train"


@dataclass(frozen=True)
class Plans:
    """The first steps of recorded plans."""

    steps: Sequence[Sequence[Transition]]
    held_out: Collection[str] = ()
    """Games whose train rows were not learned from."""

    def __bool__(self) -> bool:
        return bool(self.steps)

    def is_taught(self, row: Transition) -> bool:
        """Whether the answer to a step was there to be learned."""
        return (row.split == TRAIN or bool(row.duplicate)) and row.game not in self.held_out

    def some(self, most: int, seed: int) -> Plans:
        """At most so many of them, drawn evenly."""
        drawn = seeds.generator(seed, "recorded plans").permutation(len(self.steps))[:most]
        return replace(self, steps=[self.steps[int(i)] for i in sorted(drawn)])

    def measure(self, task: TextGamePredictor, predict: Predict) -> list[dict[str, Any]]:
        """How often a predictor is right at each depth (see `accuracy_by_depth`)."""
        trajectories = [TrueRollout.from_steps(steps) for steps in self.steps]
        return accuracy_by_depth(task, predict, trajectories, max(map(len, self.steps), default=0))

    def baselines(self, task: TextGamePredictor) -> dict[str, Predict]:
        """That nothing ever changes, and the recorded truth."""
        steps = [row for plan in self.steps for row in plan]
        return {
            "no change": lambda cases: [task.no_change(case) for case in cases],
            "perfect": recorded_predictor(task, steps),
        }

    @property
    def note(self) -> str:
        """What the plans are, and how much of them was there to be learned."""
        steps = [row for plan in self.steps for row in plan]
        taught = sum(map(self.is_taught, steps))
        return f"{len(self.steps)} recorded plans; {taught} of these {len(steps)} steps also stand in train."


def find_plans(
    folder: str | Path, split: str, depth: int, *, games: Collection[str] = (), held_out: Collection[str] = ()
) -> Plans:
    """The plans that go through a split of a folder, `depth` steps of each; its train rows fill the gaps.

    A plan that stands wholly in train would only show what was memorised, and is left out.
    """
    parts = [open_dataset(folder, name) for name in dict.fromkeys((split, TRAIN)) if name in splits(folder)]
    rows = [row for part in parts for row in _rows_on_plan(part) if not games or row.game in {*games, *held_out}]
    plans = Plans([plan[:depth] for plan in recorded_plans(rows)], held_out)
    return replace(plans, steps=[plan for plan in plans.steps if not all(map(plans.is_taught, plan))])


def _rows_on_plan(data: Dataset) -> Iterator[Transition]:
    return (data[number] for number, row in enumerate(data.rows) if row.on_plan)
