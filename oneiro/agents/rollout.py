"""Multi-turn play: many worlds and one policy, turn by turn, into episodes.

Episodes differ in length. When one ends, the next attempt takes its place at once, so that the policy always answers as
many turns together as there are places. Every turn has random numbers of its own: an episode is the same however many
are played at a time.

Where worlds wait for another process (a browser, a worker), there are two halves: the policy answers one while the
worlds of the other are stepped.

A world that raises costs its own episode and no other: it ends as an error, which is counted and never trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial

from oneiro.agents import game as games
from oneiro.agents.game import Attempt, Game
from oneiro.agents.policies import Policy
from oneiro.agents.prompts import DialogueSettings
from oneiro.episode import Episode, Sample, describe_errors
from oneiro.models.chat import ChatFormat
from oneiro.runtime import distributed, seeds
from oneiro.runtime.clock import spent
from oneiro.runtime.collector import collecting_rarely
from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import World

MAX_FAILED_EPISODES = 16
"""Where so many episodes were begun and all were lost to errors, no more are: the world is broken, not unlucky."""


def attempts(levels: int, group_size: int, split: str, first_seed: int) -> list[Attempt]:
    """Levels `first_seed`, `first_seed + 1`, ... of a split, each attempted `group_size` times; the group numbers the
    level.
    """
    return attempts_at(range(first_seed, first_seed + levels), group_size, split)


def attempts_at(level_seeds: Sequence[int], group_size: int, split: str) -> list[Attempt]:
    """The levels of these seeds, each attempted `group_size` times."""
    return [
        Attempt(seed, member, level, split) for level, seed in enumerate(level_seeds) for member in range(group_size)
    ]


def play(
    make_world: Callable[[], World],
    planned: Sequence[Attempt],
    policy: Policy,
    settings: DialogueSettings,
    chat: ChatFormat | None = None,
    seed: int = 0,
    response_prefix: str = "",
    advance: Callable[[int], object] | None = None,
    concurrency: int | None = None,
) -> list[Episode]:
    """Play every attempt to its end.

    `chat` turns messages into ids; without it (scripts, servers) episodes carry text only. `response_prefix` is text
    that every reply begins with (see `start_reply`); it counts as given. `advance` is called after each turn with the
    number of games that ended. `concurrency` bounds how many episodes are under way at a time, and workers do; by
    default all are. Where `policy.independent`, each rank of a torchrun plays a part of the attempts; otherwise every
    rank plays all, so that what the policy remembers is the same everywhere.
    """

    def play_own(own: Sequence[int]) -> list[Episode]:
        chosen = [Game(planned[place]) for place in own]
        rollout = _Rollout(make_world, chosen, policy, settings, chat, seed, response_prefix)
        try:
            with collecting_rarely():
                rollout.run(advance or (lambda ended: None), concurrency)
        finally:
            for game in chosen:
                game.close()
        return [game.episode for game in chosen]

    if not getattr(policy, "independent", False):
        with distributed.local():
            return _unless_all_lost(play_own(range(len(planned))))
    parts = distributed.split(len(planned))
    episodes = distributed.divide(parts, play_own)
    if advance is not None and distributed.world_size() > 1:
        advance(len(planned) - len(parts[distributed.rank()]))
    return _unless_all_lost(episodes)


@dataclass(slots=True)
class _Places:
    """Games that are answered together."""

    count: int
    games: list[Game] = field(default_factory=list)
    waiting: list[Game] = field(default_factory=list)
    """Those of them that wait for an answer."""
    answers: Future[list[Sample]] | None = None


@dataclass
class _Rollout:
    """One call of `play`."""

    make_world: Callable[[], World]
    games: list[Game]
    policy: Policy
    settings: DialogueSettings
    chat: ChatFormat | None
    seed: int
    response_prefix: str
    begun: int = 0
    """Games that have begun."""
    ended: int = 0

    def run(self, advance: Callable[[int], object], concurrency: int | None) -> None:
        if not self.games:
            return
        bounds = (concurrency, getattr(self.make_world, "at_once", None), len(self.games))
        places = max(1, min(bound for bound in bounds if bound is not None))
        if places > 1 and not getattr(self.policy, "reads_worlds", True) and self._waits():
            self._in_halves(places, advance)
            return
        everybody = _Places(places)
        while self._ask(everybody):
            self._take(everybody, self._answer(everybody.waiting), advance)

    def _waits(self) -> bool:
        games.make(self.games[0], self.make_world)
        world = self.games[0].world
        return world is not None and world.waits

    def _in_halves(self, places: int, advance: Callable[[int], object]) -> None:
        """The policy answers in a thread of its own. Which turns are answered together does not depend on time."""
        halves = [_Places(places - places // 2), _Places(places // 2)]
        thread = ThreadPoolExecutor(1, "oneiro-policy")

        def ask(half: _Places) -> None:
            # In the context of this thread, so that sampling knows whether ranks share it.
            own = copy_context()
            half.answers = thread.submit(own.run, self._answer, half.waiting) if self._ask(half) else None

        try:
            for half in halves:
                ask(half)
            while any(half.answers is not None for half in halves):
                for half in halves:
                    if half.answers is not None:
                        with spent("sampling"):
                            answers = half.answers.result()
                        self._take(half, answers, advance)
                        ask(half)
        finally:
            thread.shutdown(cancel_futures=True)

    def _ask(self, places: _Places) -> bool:
        """Fill free places, and put the state of every game into words; whether there is anything to answer."""
        places.waiting, asking = [], list(places.games)
        longest = getattr(self.policy, "longest_prompt", None)
        while True:
            new = self._begin(places.count - len(places.games))
            places.games += new
            asked = [*asking, *new]
            games.ask_many(asked, self.settings, self.chat, partial(start_reply, self.response_prefix))
            for game in asked:
                if game.over:
                    continue
                if game.turn > 1 and longest is not None and len(game.prompt) > longest:
                    games.leave(game)
                else:
                    places.waiting.append(game)
            asking = []
            self._close(places)
            if len(places.games) == places.count or self.begun == len(self.games):
                return bool(places.waiting)

    def _begin(self, count: int) -> list[Game]:
        """The next games, as many as there are places for."""
        if self.begun >= MAX_FAILED_EPISODES and count:
            _unless_all_lost([game.episode for game in self.games[: self.begun]])
        new = self.games[self.begun : self.begun + count]
        self.begun += len(new)
        for game in new:
            games.make(game, self.make_world)
        games.start_many(new)
        return new

    def _take(self, places: _Places, answers: Sequence[Sample], advance: Callable[[int], object]) -> None:
        games.take_many(places.waiting, answers, self.settings)
        for game in places.games:
            game.over = game.over or game.turn == self.settings.max_turns
        self._close(places)
        advance(self.ended)
        self.ended = 0

    def _close(self, places: _Places) -> None:
        """Take out the games that are over."""
        for game in places.games:
            if game.over:
                game.close()
                self.ended += 1
        places.games = [game for game in places.games if not game.over]

    def _answer(self, waiting: list[Game]) -> list[Sample]:
        """What the policy says, with random numbers that depend on nothing but the turn."""
        own = [seeds.derive(self.seed, "turn", game.turn) for game in waiting]
        together = getattr(self.policy, "answer_each", None)
        if together is not None:
            answers: list[Sample] = together(waiting, own)
            return answers
        samples: dict[int, Sample] = {}
        for number in dict.fromkeys(own):  # a batch of turns has one seed
            places = [place for place, seed in enumerate(own) if seed == number]
            samples.update(zip(places, self.policy.answer([waiting[place] for place in places], number), strict=True))
        return [samples[place] for place in range(len(waiting))]


def _unless_all_lost(episodes: list[Episode]) -> list[Episode]:
    """Nothing is gained by going on where a world never works."""
    if len(episodes) > 1 and all("error" in episode.info for episode in episodes):
        raise OneiroError(
            f"the world {episodes[0].world} raised in all of its episodes ({describe_errors(episodes)}); mend it first"
        )
    return episodes


def start_reply(response_prefix: str, state: str) -> str:
    """How a reply to `state` is made to begin; `{state}` in `response_prefix` stands for the state's text."""
    return response_prefix.replace("{state}", state)


def gives_state(response_prefix: str) -> bool:
    """Whether replies begin with the true state, so that writing it down is no achievement."""
    return "{state}" in response_prefix
