"""Planning under rules that were never met: the predictor of `rlvr/physics`, which infers them from a few steps.

    world model (SFT)  ->  policy, from its weights  ->  search for the room's goal  ->  search for another goal

The policy has the context of the model and starts from its weights: it has learned all that the model has, and then
best actions besides. The planner has no reward and no demonstration. Beside it: votes of the policy with the planner's
tokens, and the same search with a model of no change, lookups, shuffled predictions, the context of other rules, and
with the true rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar, cast

import numpy as np

from oneiro.agents.planning.base import EveryAction, PolicyProposals, Root
from oneiro.agents.planning.policy import PlanningPolicy, VotePolicy, dialogue, make_planner, traces
from oneiro.agents.planning.rules import room_rule
from oneiro.agents.planning.values import RuleValue
from oneiro.agents.policies import Policy, ScriptedPolicy
from oneiro.agents.rollout import attempts_at, play
from oneiro.episode import Episode, Row, Tokens
from oneiro.learning import stages
from oneiro.models.chat import ChatFormat
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.systems.plan.pipeline import Planning
from oneiro.systems.plan.recipe import PlanPhysicsRecipe
from oneiro.tasks.answering import LazyRows
from oneiro.tasks.base import Cached, Dynamics, Shuffled
from oneiro.tasks.rules.physics import STAYED, PhysicsCase, PhysicsSituation, TextLookup, copy_outcome
from oneiro.tasks.rules.physics_data import FULL, draw
from oneiro.tasks.rules.physics_dynamics import Context, PhysicsDynamics, RoomTiles, TruePhysics, observe, read_tiles
from oneiro.tasks.rules.physics_task import PhysicsMetadata, PhysicsTask
from oneiro.tasks.rules.recipe import PhysicsRecipe
from oneiro.worlds.base import World
from oneiro.worlds.baselines import random_policy
from oneiro.worlds.levels import distinct_seeds
from oneiro.worlds.rules.physics import (
    BARE,
    TARGET,
    WORDS,
    Physics,
    advance,
    displacement,
    draw_physics,
    draw_room,
    shortest,
    show_map,
)
from oneiro.worlds.rules.physics_world import PhysicsConfig, PhysicsWorld, TargetRoom

POLICY = "policy"
WORLDS: dict[str, type[PhysicsWorld]] = {
    "The room's own goal": PhysicsWorld,
    "Another goal, no new training: a tile that nothing marks": TargetRoom,
}
"""Table -> who says where the goal is."""


class PhysicsPlanning(Planning):
    """One run: search in a predictor of drawn physics."""

    recipe: PlanPhysicsRecipe
    curve: ClassVar = ("Loss of the policy", POLICY)
    steps_title: ClassVar[str] = "displacements under rules that training never had"
    beside: ClassVar = (
        "policy",
        "policy, vote",
        "policy, vote, told",
        "beam, another context",
        "beam, copy from the prompt",
    )

    def __init__(self, recipe: PlanPhysicsRecipe, run: Run, number: int) -> None:
        super().__init__(recipe, run, number)
        # Of the task only what comes before RL is used: RL's own settings are not in this recipe.
        self.task = PhysicsTask(cast(PhysicsRecipe, recipe), run)
        self.stages = [*self.task.first_stages, POLICY]

    def name_stage(self, stage: str) -> str:
        return stage  # there is one repeat

    def learn(self) -> None:
        self.task.prepare()
        self.start = self.task.supervise()
        self.run.stage(POLICY, self.learn_policy)

    # The policy

    def learn_policy(self) -> dict[str, Any]:
        name, language = self.recipe.model.name, stages.weights_after(self.run, [self.start], self.recipe.model)
        trained = PhysicsMetadata.read(language, name)
        if trained is not None and trained.task != self.recipe.task:
            wanted = " ".join(f"task.{key}={json.dumps(value)}" for key, value in trained.task.model_dump().items())
            raise OneiroError(f"the model at {name} was trained with other prompts; set {wanted}")
        language.metadata = {}  # what is learned here acts and predicts nothing
        chat, seed = ChatFormat(language.tokenizer), seeds.derive(self.recipe.seed, POLICY)

        def row(number: int) -> Row:
            state, way, word = draw_decision(seed, number, self.recipe)
            return chat.answer_row(self.prompt(chat, state), f" {way} {word}")

        rows = LazyRows(row, self.recipe.policy_rows)
        return {
            "rows": len(rows),
            "steps": stages.supervise(self.run, POLICY, POLICY, language, rows, [], self.recipe.policy, seed),
        }

    def prompt(self, chat: ChatFormat, state: PhysicsSituation) -> Tokens:
        if self.recipe.task.view == "sight":
            state = replace(state, text=with_goal(read_tiles(state.text)))
        return chat.opening(self.task.predictor.prompt(state)[0]["content"])

    def proposals(self, samples: int) -> PolicyProposals[PhysicsSituation]:
        chat = ChatFormat(self._policy.language.tokenizer)

        def prompt(root: Root[PhysicsSituation]) -> Tokens:
            return self.prompt(chat, root.state)

        return PolicyProposals(self._policy, self.recipe.sampling, samples, prompt, read_word)

    @cached_property
    def _policy(self) -> Engine:
        return Engine(stages.weights_after(self.run, [POLICY], self.recipe.model), self.recipe.max_batch_size)

    # Measurements

    def evaluate(self) -> dict[str, Any]:
        task = self.task.predictor
        model = self.task.answering(Engine(self.task.model(self.start), self.recipe.max_batch_size))
        lookup = TextLookup(self.task.remembered)
        learned = Cached(PhysicsDynamics(task, model))
        answers: dict[str, Callable[[PhysicsSituation], str]] = {
            "no change": lambda case: STAYED,
            "lookup": lookup,
            "copy from the prompt": copy_outcome,
        }
        inside: dict[str, Dynamics[PhysicsSituation]] = {
            **{name: PhysicsDynamics(task, partial(_each, answer)) for name, answer in answers.items()},
            "shuffled model": Shuffled(learned, self.starts, self.recipe.seed),
            "another context": PhysicsDynamics(
                task, lambda cases: model([replace(c, context=self.other[c.context]) for c in cases])
            ),
            "model": learned,
        }
        rows: dict[str, Any] = {}
        for title, world in WORLDS.items():
            rows[title] = {f"beam, {name}": self.measure(world, self.planner(one)) for name, one in inside.items()}
            rows[title] |= self.measure_policy(world, rows[title]["beam, model"]["tokens"])
            shown = ", ".join(f"{name} {np.mean(row['success']):.1%}" for name, row in rows[title].items())
            self.run.say(f"{title}: {shown}")
        searching = self.planner(learned)
        episodes = self.play_levels(PhysicsWorld, searching, self.recipe.play.traces)
        self.write_traces(traces(searching, episodes, "beam search in the predictor"))
        steps: dict[str, Callable[[Sequence[PhysicsCase]], Sequence[str]]] = {
            "no change": partial(_each, answers["no change"]),
            "lookup": partial(_each, lookup),
            "model": model,
        }
        return {"rows": rows, "steps": {name: self.accuracy(predict) for name, predict in steps.items()}}

    def measure_policy(self, world: type[PhysicsWorld], budget: float) -> dict[str, Any]:
        """The policy alone, and its vote with the tokens that a decision of the planner takes. For another goal also a
        policy that is told of it: its map shows the sign of the goal there.
        """
        rows = {"policy": self.measure(world, VotePolicy(self.proposals(1), self.observe))}
        votes = self.votes(budget, rows["policy"]["tokens"], self.recipe.play.vote_most)
        rows["policy, vote"] = self.measure(world, VotePolicy(self.proposals(votes), self.observe))
        if world is TargetRoom:
            rows["policy, vote, told"] = self.measure(world, VotePolicy(self.proposals(votes), self.observe_told))
        return rows

    def reference(self) -> dict[str, Any]:
        """Chance below; above, the same search with the true rules, and the best possible."""
        rows: dict[str, Any] = {}
        for title, world in WORLDS.items():
            policies: dict[str, Policy] = {
                "random": ScriptedPolicy(random_policy),
                "beam, true rules": self.planner(TruePhysics(self.rules)),
                "beam, true displacements": self.planner(TruePhysics(self.rules, whole=False)),
            }
            rows[title] = {name: self.measure(world, policy) for name, policy in policies.items()}
            rows[title]["best possible"] = {"success": [1.0] * len(self.levels(world)), "tokens": 0.0}
        return rows

    def accuracy(self, predict: Callable[[Sequence[PhysicsCase]], Sequence[str]]) -> dict[str, Any]:
        """Exact answers to the test of `rlvr/physics`, by physics; those where the walker moves apart."""
        cases = self.task.test[1][FULL]
        by_rules: dict[str, list[tuple[PhysicsCase, float]]] = {}
        for case, text in zip(cases, predict(cases), strict=True):
            by_rules.setdefault(case.rules, []).append((case, self.task.predictor.metrics(text, case)["exact"]))
        moved = [[hit for case, hit in hits if case.after != STAYED] for hits in by_rules.values()]
        return {
            "all": [float(np.mean([hit for _, hit in hits])) for hits in by_rules.values()],
            "changed": [float(np.mean(hits)) if hits else None for hits in moved],
        }

    # What is played

    def make_world(self, kind: type[PhysicsWorld]) -> PhysicsWorld:
        return kind(PhysicsConfig(max_actions=self.recipe.play.max_actions, examples=max(self.recipe.data.context)))

    def levels(self, kind: type[PhysicsWorld]) -> list[int]:
        """Seeds of levels, each with rules of its own; for another goal those of them that have one."""
        return [seed for seed in self._levels if kind is PhysicsWorld or self._has_target(seed)]

    @cached_property
    def _levels(self) -> list[int]:
        settings = self.recipe.play
        return distinct_seeds(partial(self.make_world, PhysicsWorld), "eval", settings.levels, settings.first_seed)

    def _has_target(self, seed: int) -> bool:
        world = self.make_world(TargetRoom)
        return world.reset(seed=seed, options={"split": "eval"})[1]["target"] >= 0

    @cached_property
    def worlds(self) -> list[PhysicsWorld]:
        """Every level at its start."""
        worlds = [self.make_world(PhysicsWorld) for _ in self._levels]
        for world, seed in zip(worlds, self._levels, strict=True):
            world.reset(seed=seed, options={"split": "eval"})
        return worlds

    @cached_property
    def starts(self) -> list[PhysicsSituation]:
        return [self.observe(world) for world in self.worlds]

    @cached_property
    def rules(self) -> dict[Context, Physics]:
        return {start.context: world.physics for start, world in zip(self.starts, self.worlds, strict=True)}

    @cached_property
    def other(self) -> dict[Context, Context]:
        contexts = [start.context for start in self.starts]
        return dict(zip(contexts, [*contexts[1:], contexts[0]], strict=True))

    def observe(self, world: World) -> PhysicsSituation:
        return observe(world, self.recipe.task.view)

    def observe_told(self, world: World) -> PhysicsSituation:
        assert isinstance(world, TargetRoom)
        state = self.observe(world)
        tiles = read_tiles(state.text)
        glyphs = [BARE if glyph == TARGET else glyph for glyph in tiles.glyphs]
        glyphs[world.target] = TARGET
        return replace(state, text=tiles._replace(glyphs=tuple(glyphs)).text)

    def planner(self, inside: Dynamics[PhysicsSituation]) -> PlanningPolicy[PhysicsSituation]:
        """A planner with a cache of its own: what it costs does not depend on who asked before."""
        propose = EveryAction[PhysicsSituation](lambda state: WORDS)
        planner = make_planner(Cached(inside), propose, RuleValue(room_rule), self.recipe.planner)
        return PlanningPolicy(planner, self.observe, task_of, predicts=False)

    def measure(self, world: type[PhysicsWorld], policy: Policy) -> dict[str, Any]:
        return self.row(policy, self.play_levels(world, policy))

    def play_levels(self, world: type[PhysicsWorld], policy: Policy, most: int | None = None) -> list[Episode]:
        # Votes and scripts write the states' places, if only blank.
        form = dialogue(self.recipe.play.max_actions, predicts=not isinstance(policy, PlanningPolicy))
        planned = attempts_at(self.levels(world)[:most], 1, "eval")
        return play(
            partial(self.make_world, world), planned, policy, form, None, seeds.derive(self.recipe.seed, "play")
        )


def draw_decision(seed: int, number: int, recipe: PlanPhysicsRecipe) -> tuple[PhysicsSituation, str, str]:
    """A state on a shortest way under training rules, with the longest context; how far the best step leads, and its
    word. A policy says both: where to go, then which word goes there. Of the word alone it learns nothing.
    """
    rng, view = seeds.generator(seed, "decision", number), recipe.task.view
    while True:
        physics = draw_physics(rng, "train")
        room = draw_room(rng, physics)
        way = shortest(physics, room, recipe.play.max_actions)
        if way is not None and len(way) >= 2:
            break
    place = int(rng.integers(len(way)))
    for word in way[:place]:
        room = advance(physics, room, word)
    context = draw(rng, physics, "train", max(recipe.data.context) // len(WORDS), view).case(view, "", "").context
    after = advance(physics, room, way[place])
    return PhysicsSituation(context, show_map(physics, room), ""), displacement(room, after), WORDS[way[place]]


def with_goal(tiles: RoomTiles) -> str:
    """What a predictor reads of a room in the view `sight`, and how far the goal is: rows, then columns. `tiny` learns
    to find neither in a map, and nothing of where to go.
    """
    goal = tiles.glyphs.index(TARGET) if TARGET in tiles.glyphs else tiles.walker
    (row, column), (to_row, to_column) = divmod(tiles.walker, tiles.size), divmod(goal, tiles.size)
    down, right = to_row - row, to_column - column
    return f"{tiles.sight} {TARGET} {'D' * down or 'U' * -down or STAYED} {'R' * right or 'L' * -right or STAYED}"


def read_word(text: str) -> str | None:
    """The word at the end of what a policy said; None where there is none."""
    *_, last = ["", *text.split()]
    return last if last in WORDS else None


def task_of(world: World) -> int | None:
    return world.target if isinstance(world, TargetRoom) else None


def _each(answer: Callable[[Any], str], cases: Sequence[Any]) -> list[str]:
    return [answer(case) for case in cases]
