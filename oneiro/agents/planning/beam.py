"""Beam search: states by depth, the best of each depth expanded, values carried back to the first action.

What is looked at is a graph, since many ways lead to one state. A state is worth what it is judged to be or, if that is
more, what its best action is worth; an action is worth the discounted mean over its outcomes, less where its proposer
finds it unlikely (`prior`); an outcome that cannot be read is worth `WORST` and ends its branch. So one search serves
deterministic models (one outcome) and samples of stochastic ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from oneiro.agents.planning.base import BEST, WORST, Candidate, Decision, Meter, Planner, Root, best_of
from oneiro.runtime import seeds
from oneiro.tasks.base import Malformed

StateT = TypeVar("StateT")

SWEEPS = 1000
"""Passes over a graph until its values stand still; a deterministic one needs as many as it is deep."""


@dataclass(slots=True)
class _Vertex(Generic[StateT]):
    """A state of the graph."""

    state: StateT
    value: float
    """As judged."""
    done: bool
    worth: float
    """As judged or by its best action."""
    share: float = 1.0
    """What `PlannerSettings.prior` makes of the weights on the way, multiplied; of several ways the best one's."""
    edges: dict[str, list[Hashable | None]] = field(default_factory=dict)
    """By action the states it may lead to; None: an unreadable outcome."""
    weights: dict[str, float] = field(default_factory=dict)


_Graph = dict[Hashable, _Vertex[StateT]]


class BeamSearch(Planner[StateT]):
    """Expands the `width` best new states of each depth."""

    def plan(self, roots: Sequence[Root[StateT]], seed: int = 0) -> list[Decision]:
        meter = Meter(self, roots, seed)
        start = [(number, root.state) for number, root in enumerate(roots)]
        graphs: list[_Graph[StateT]] = []
        for (_, state), judged in zip(start, meter.value(start), strict=True):
            # The present state is not over, whatever a value says: there is a decision to be made in it.
            graphs.append({self.dynamics.key(state): _Vertex(state, judged.value, False, judged.value)})
        fronts: list[list[Hashable]] = [list(graph) for graph in graphs]
        for _ in range(self.settings.depth):
            fronts = [front if front and meter.open(root) else [] for root, front in enumerate(fronts)]
            if not any(fronts):
                break
            fronts = self._expand(meter, graphs, fronts)
            for root, front in enumerate(fronts):
                if self.settings.outcomes == 1 and any(_is_won(graphs[root][key]) for key in front):
                    meter.ended[root] = meter.ended[root] or "goal"  # a longer way to it is worth less
                fronts[root] = self._best(graphs[root], front)
                if not fronts[root]:
                    meter.ended[root] = meter.ended[root] or "exhausted"
        return [self._decide(meter, root, graph, seed) for root, graph in enumerate(graphs)]

    def _best(self, graph: _Graph[StateT], front: list[Hashable]) -> list[Hashable]:
        alive = [key for key in front if not graph[key].done]
        # The number of actions is the same for all, so only what they are judged to be and the shares count.
        return sorted(alive, key=lambda key: -graph[key].value * graph[key].share)[: self.settings.width]

    def _expand(
        self, meter: Meter[StateT], graphs: list[_Graph[StateT]], fronts: list[list[Hashable]]
    ) -> list[list[Hashable]]:
        """One depth of all decisions: one call to propose, one to predict, one to value. Returns the new states."""
        here = [(root, key) for root, front in enumerate(fronts) for key in front]
        proposed = meter.propose([(root, graphs[root][key].state) for root, key in here])
        requests = [
            (root, key, action, weight)
            for (root, key), proposal in zip(here, proposed, strict=True)
            for action, weight in zip(proposal.actions, proposal.weights, strict=True)
        ]
        answers = meter.predict([(root, graphs[root][key].state, action) for root, key, action, _ in requests])
        new: dict[tuple[int, Hashable], tuple[StateT, float]] = {}
        for (root, key, action, weight), outcomes in zip(requests, answers, strict=True):
            vertex = graphs[root][key]
            vertex.weights[action] = weight
            if outcomes is None:
                meter.ended[root] = "tokens"
                continue
            vertex.edges[action] = []
            for outcome in outcomes:
                if isinstance(outcome.state, Malformed):
                    vertex.edges[action].append(None)
                    continue
                there = self.dynamics.key(outcome.state)
                vertex.edges[action].append(there)
                if there not in graphs[root]:
                    share = vertex.share * self._share(weight)
                    known = new[root, there][1] if (root, there) in new else 0.0
                    new[root, there] = outcome.state, max(known, share)
        judged = meter.value([(root, state) for (root, _), (state, _) in new.items()])
        fresh: list[list[Hashable]] = [[] for _ in graphs]
        for ((root, key), (state, share)), verdict in zip(new.items(), judged, strict=True):
            graphs[root][key] = _Vertex(state, verdict.value, verdict.done, verdict.value, share)
            fresh[root].append(key)
        return fresh

    def _decide(self, meter: Meter[StateT], root: int, graph: _Graph[StateT], seed: int) -> Decision:
        self._back_up(graph)
        start = next(iter(graph.values()))
        candidates = []
        for action, weight in start.weights.items():
            outcomes = start.edges.get(action)
            first = next((key for key in outcomes or () if key is not None), None)
            shown = self.dynamics.show(graph[first].state) if first is not None else None
            # An action that the budget did not reach to is neither good nor bad.
            value = self._worth(graph, start, action) if outcomes is not None else 0.0
            candidates.append(Candidate(action, shown, value, weight))
        place = best_of(candidates, seeds.generator(seed, "choice", root))
        chosen = candidates[place] if place is not None else None
        return Decision(
            action=chosen.action if chosen else None,
            value=chosen.value if chosen else 0.0,
            candidates=candidates,
            plan=self._follow(graph, chosen.action) if chosen else (),
            tokens=meter.tokens[root],
            predictions=meter.predictions[root],
            ended=meter.ended[root] or "depth",
        )

    def _back_up(self, graph: _Graph[StateT]) -> None:
        expanded = [vertex for vertex in graph.values() if vertex.edges]
        for _ in range(SWEEPS):
            change = 0.0
            # From the deepest up, so that one pass carries values all the way where there is no circle.
            for vertex in reversed(expanded):
                worth = max(vertex.value, *(self._worth(graph, vertex, action) for action in vertex.edges))
                change, vertex.worth = max(change, abs(worth - vertex.worth)), worth
            if change < 1e-9:
                return

    def _worth(self, graph: _Graph[StateT], vertex: _Vertex[StateT], action: str) -> float:
        values = [WORST if key is None else graph[key].worth for key in vertex.edges[action]]
        mean = sum(values) / len(values) if values else WORST
        return self.settings.discount * self._share(vertex.weights[action]) * mean

    def _share(self, weight: float) -> float:
        """What a value is multiplied by for an action that its proposer gives this weight."""
        return float(weight**self.settings.prior)

    def _follow(self, graph: _Graph[StateT], action: str) -> tuple[str, ...]:
        """The best actions from the root on, as long as the first outcome of each is known."""
        plan, vertex, seen = [action], next(iter(graph.values())), set[Hashable]()
        while True:
            key = next((key for key in vertex.edges.get(plan[-1], ()) if key is not None), None)
            # A predicted way may lead in a circle.
            if key is None or key in seen or graph[key].done or not graph[key].edges:
                return tuple(plan)
            seen.add(key)
            vertex = graph[key]
            worths = {action: self._worth(graph, vertex, action) for action in vertex.edges}
            best = max(worths, key=lambda action: worths[action])
            if worths[best] <= vertex.value:
                return tuple(plan)  # nothing better lies ahead
            plan.append(best)


def _is_won(vertex: _Vertex[StateT]) -> bool:
    return vertex.done and vertex.value >= BEST
