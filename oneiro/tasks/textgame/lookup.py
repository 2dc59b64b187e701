"""A baseline that learns nothing: the nearest training case, and its change made to the state in question.

    lookup = TextGameLookup(open_dataset(folder, "train"))
    text = lookup(situation)

A case is near if it is of the same game and its command has the same verb and names as many objects. Distance counts
what differs: facts of the two states, facts of the objects that the commands name, and words of the commands (`WORD`
each). The objects of the two states are paired (`pairs`) and the case's edits are made to the asked state (`transfer`).
Where an edit cannot be made, the next nearest case counts; of equally near cases the first. Where no case fits, nothing
changes. A game without cases is answered from other games, by command and named objects alone; its score stays.

A whole step takes two lookups: what the command does, and what time then does to the resulting state, both from rows
of the training data, which record the state in between.

As a prompt's suggestion (`task.retrieve`) a training case is answered from other states only: its own answer would
teach a model to copy.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.tasks.textgame.parse import Output
from oneiro.tasks.textgame.prompt import answer
from oneiro.tasks.textgame.score import AskedStep
from oneiro.tasks.textgame.transfer import Facts, Pairing, StateView, transfer
from oneiro.worlds.textgame.state import Kind, Score, Situation, State, Transition

WORD = 2
"""What a differing word of the command counts; a differing fact counts 1. Chosen on ByteSized32's training rows."""
CACHED_VIEWS = 4096
"""Views of asked states, or vectors of distances, that are kept for the next question."""
FAR = 1 << 40
"""The distance of what does not count."""
CASES_TRIED = 64
"""Nearest cases that are tried until one fits."""

Numbers = NDArray[np.int64]


class TextGameLookup:
    """Answers situations with the nearest of `cases`, in the form that a predictor with this kind and output reads."""

    def __init__(self, cases: Sequence[Transition], kind: Kind = "full", output: Output = "difference") -> None:
        self.kind, self.output = kind, output
        self.index = _Index(cases)

    def __call__(self, case: Situation) -> str:
        """The answer as text. Uses of a transition only what its question shows."""
        return answer(self.predict(case), self.kind, self.output)

    def suggest(self, case: Situation) -> str:
        """The answer of a prompt's suggestion: a training case sees nothing of its own state."""
        return answer(
            self.predict(case, others=isinstance(case, Transition) and case.split == "train"), self.kind, self.output
        )

    def predict(self, case: Situation, others: bool = False) -> AskedStep:
        """The states and scores before and after; `after` is what the nearest case says, with `others` the nearest one
        from another state.
        """
        if self.kind == "tick":
            before = case.after_action if isinstance(case, Transition) else case.state
            return AskedStep(before, self._tick(case, before, others))
        if self.kind == "score":
            after = case.after if isinstance(case, Transition) else case.state
            return AskedStep(case.state, case.state, case.score, self._command(case, others, after)[1])
        state, score = self._command(case, others)
        if self.kind == "action":
            return AskedStep(case.state, state)
        return AskedStep(case.state, self._tick(case, state, others), case.score, score)

    def _command(self, case: Situation, others: bool, after: State | None = None) -> tuple[State, Score]:
        """The state and the score that the nearest command leads to."""
        seen = self.index.view(case.state)
        for nearest in self.index.nearest(case, seen, others, after):
            known = self.index.view(nearest.state)
            named = known.args(nearest.action), seen.args(case.action)
            pairing = Pairing(known, seen, *named, nearest.uuid_base, case.uuid_base)
            if (state := transfer(nearest.state, nearest.after_action, pairing, case.state)) is not None:
                # Points of one game mean nothing in another.
                return state, pairing.score(nearest, case.score) if nearest.game == case.game else case.score
        return case.state, case.score

    def _tick(self, case: Situation, before: State, others: bool) -> State:
        """The state after time has passed, by the nearest state of the game."""
        seen = StateView(before)
        for nearest in self.index.nearest_in_time(case.game, seen, others):
            bases = _free(nearest.after_action, nearest.uuid_base), _free(before, case.uuid_base)
            pairing = Pairing(self.index.view(nearest.after_action), seen, (), (), *bases)
            if (state := transfer(nearest.after_action, nearest.after, pairing, before)) is not None:
                return state
        return before


# Near and far --------------------------------------------------------------------------------------------------------


class _Near:
    """Distinct sets of facts, and how many facts another set differs from each of them by."""

    def __init__(self) -> None:
        self.numbers: dict[Facts, int] = {}
        self.kept: dict[Facts, Numbers] = {}

    def add(self, facts: Facts) -> int:
        return self.numbers.setdefault(facts, len(self.numbers))

    @cached_property
    def sizes(self) -> Numbers:
        return np.array([len(facts) for facts in self.numbers], np.int64)

    @cached_property
    def holders(self) -> dict[tuple[Any, ...], Numbers]:
        """By fact, the numbers of the sets that hold it."""
        lists = defaultdict(list)
        for facts, number in self.numbers.items():
            for fact in facts:
                lists[fact].append(number)
        return {fact: np.array(numbers, np.int64) for fact, numbers in lists.items()}

    def distances(self, facts: Facts) -> Numbers:
        if (values := self.kept.get(facts)) is None:
            shared = [self.holders[fact] for fact in facts if fact in self.holders]
            count = np.bincount(np.concatenate(shared), minlength=len(self.sizes)) if shared else 0
            if len(self.kept) >= CACHED_VIEWS:
                self.kept.clear()
            values = self.kept[facts] = self.sizes + len(facts) - 2 * count
        return values


class _Index:
    """Cases by game, verb and number of named objects: columns case, state, state after, words, and each object."""

    def __init__(self, cases: Sequence[Transition]) -> None:
        self.cases = cases
        self.states, self.afters, self.moments = (defaultdict[str, _Near](_Near) for _ in range(3))
        self.words, self.things = _Near(), _Near()
        self.moment: dict[tuple[str, int], int] = {}
        """The first case of each distinct state that time passes in."""
        self.views: dict[int, StateView] = {}
        """Views of states by their place in memory; a view keeps its state there."""
        view = _Interned().view
        columns = defaultdict[tuple[str, str, int], list[tuple[int, ...]]](list)
        for number, case in enumerate(cases):
            seen = view(case.state)
            verb, words, args = seen.command(case.action)
            states = (
                self.states[case.game].add(seen.facts),
                self.afters[case.game].add(view(case.after).facts),
            )
            things = [self.things.add(seen.thing_facts(uuid)) for uuid in args]
            columns[case.game, verb, len(args)].append((number, *states, self.words.add(words), *things))
            moment = self.moments[case.game].add(view(case.after_action).facts)
            self.moment.setdefault((case.game, moment), number)
        self.columns = {key: np.array(rows, np.int64).T for key, rows in columns.items()}

    @cached_property
    def everywhere(self) -> dict[tuple[str, int], Numbers]:
        """The columns of all games together, by verb and number of objects."""
        games = defaultdict(list)
        for (_, verb, count), columns in self.columns.items():
            games[verb, count].append(columns)
        return {key: np.concatenate(parts, axis=1) for key, parts in games.items()}

    def nearest(
        self, case: Situation, seen: StateView, others: bool = False, after: State | None = None
    ) -> Iterator[Transition]:
        """The nearest cases by command and state, and by the state after where that is known too; nearest first. With
        `others` only cases from another state.
        """
        verb, words, args = seen.command(case.action)
        own = case.game in self.states
        columns = self.columns.get((case.game, verb, len(args))) if own else self.everywhere.get((verb, len(args)))
        if columns is None:
            return
        distance = WORD * self.words.distances(words)[columns[3]]
        for place, uuid in enumerate(args, 4):
            distance = distance + self.things.distances(seen.thing_facts(uuid))[columns[place]]
        if own:
            distance = distance + self.states[case.game].distances(seen.facts)[columns[1]]
        if own and after is not None:
            distance = distance + self.afters[case.game].distances(self.view(after).facts)[columns[2]]
        if own and others:
            distance = np.where(columns[1] == self.states[case.game].numbers.get(seen.facts, -1), FAR, distance)
        for place in _closest(distance):
            if distance[place] < FAR:
                yield self.cases[int(columns[0][place])]

    def nearest_in_time(self, game: str, seen: StateView, others: bool = False) -> Iterator[Transition]:
        if game in self.moments:
            distances = self.moments[game].distances(seen.facts)
            for moment in _closest(distances):
                if distances[moment] or not others:
                    yield self.cases[self.moment[game, int(moment)]]

    def view(self, state: State) -> StateView:
        """A state as it is looked at, kept for a while: many commands are asked in each."""
        if (view := self.views.get(id(state))) is None:
            if len(self.views) >= CACHED_VIEWS:
                self.views.clear()
            view = self.views[id(state)] = StateView(state)
        return view


def _closest(distances: Numbers) -> Numbers:
    """The places of the nearest `CASES_TRIED`, nearest first; of equally near ones the first."""
    places = np.arange(len(distances))
    if len(distances) > CASES_TRIED:
        places = np.flatnonzero(distances <= np.partition(distances, CASES_TRIED - 1)[CASES_TRIED - 1])
    return places[np.argsort(distances[places], kind="stable")][:CASES_TRIED]


class _Interned:
    """Views of the cases' states; equal states share one."""

    def __init__(self) -> None:
        self.by_id: dict[int, tuple[State, StateView]] = {}
        self.by_text: dict[str, StateView] = {}

    def view(self, state: State) -> StateView:
        if id(state) not in self.by_id:  # the state is kept with its view, so its place in memory stays its own
            text = json.dumps(state)
            if text not in self.by_text:
                self.by_text[text] = StateView(state)
            self.by_id[id(state)] = state, self.by_text[text]
        return self.by_id[id(state)][1]


def _free(state: State, base: int) -> int:
    """The first free uuid where objects that the command has just made are counted already."""
    return max([base, *(thing["uuid"] + 1 for thing in state)])
