"""One episode under way: how its state is put into words and ids, and what an answer does to its world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from oneiro.agents import prompts as words
from oneiro.agents import reply as replies
from oneiro.agents.prompts import DialogueSettings
from oneiro.episode import Episode, FinishReason, Row, Sample, Tokens, given
from oneiro.models.chat import ChatFormat
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError, unwrap
from oneiro.worlds.base import Step, World, WorldLost

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to be made: which level, and which of its attempts."""

    seed: int
    member: int = 0
    group: int = 0
    split: str = "train"
    task: Any = None
    """A task of the world's own kind to be given instead of the one that the seed draws, where the world takes one."""


@dataclass(slots=True)
class Game:
    """An episode under way."""

    attempt: Attempt
    episode: Episode = field(init=False)
    world: World | None = None
    turn: int = 0
    """Turns that were asked for."""
    state: str = ""
    past: list[tuple[str, tuple[str, ...], float]] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    prompt: Tokens = field(default_factory=lambda: np.zeros(0, np.int32))
    """What a model is asked in ids, up to where the reply begins; empty where nobody reads ids."""
    response_prefix: str = ""
    """What the prompt already says of the reply."""
    ended: bool = True
    used: int = 0
    over: bool = False

    def __post_init__(self) -> None:
        attempt = self.attempt
        self.episode = Episode(
            rows=[],
            terms={"world": [], "format": []},
            seed=attempt.seed,
            member=attempt.member,
            group=attempt.group,
            info={"turns": [], "optimum": None},
        )

    @property
    def playing(self) -> World:
        assert self.world is not None
        return self.world

    @property
    def seed(self) -> int:
        """Different for every episode and turn."""
        return seeds.derive(self.attempt.seed, self.attempt.member, self.turn)

    def close(self) -> None:
        world, self.world = self.world, None
        if world is not None:
            with suppress(Exception):  # the episode is over, and the others wait to be closed too
                world.close()


@contextmanager
def guard(game: Game) -> Iterator[None]:
    """What a world raises ends its episode as an error. A mistake that a person can mend is still the person's."""
    try:
        yield
    except Exception as error:
        # A missing file or a wrong setting would break every episode: the person hears of it instead of reading an
        # empty table. A worker that died is nobody's mistake and costs its episode.
        if isinstance(error, OneiroError) and not isinstance(error, WorldLost):
            raise
        game.episode.finish_reason, game.over = FinishReason.ERROR, True
        # One line and bounded: whatever a world raises goes into the records.
        game.episode.info["error"] = f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def make(game: Game, make_world: Callable[[], World]) -> None:
    if game.world is None and not game.over:
        with guard(game):
            game.world = make_world()
            game.episode.world = game.world.name


def start_many(games: Sequence[Game]) -> None:
    """Reset the worlds of these games."""
    games = [game for game in games if not game.over]
    options = []
    for game in games:
        options.append({"split": game.attempt.split, "member": game.attempt.member})
        if game.attempt.task is not None:
            options[-1]["task"] = game.attempt.task
    started = reset_many([game.playing for game in games], [game.attempt.seed for game in games], options)
    for game, result in zip(games, started, strict=True):
        with guard(game):
            game.state, info = unwrap(result)
            game.episode.task, game.episode.info["optimum"] = info["key"], info.get("optimum")


def ask_many(
    games: Sequence[Game],
    settings: DialogueSettings,
    chat: ChatFormat | None = None,
    begin_reply: Callable[[str], str] = lambda state: "",
) -> None:
    """Put the games' states into words and ids, for a policy to answer. A full-history dialogue grows its row; the
    other contexts start a new one. `begin_reply` makes the given beginning of a reply from the state.
    """
    for game in games:
        if not game.over:
            with guard(game):
                _add_message(game, settings)
                game.response_prefix = begin_reply(game.state)
    if chat is None:
        return
    asked = [game for game in games if not game.over]
    # One by one, pages would be tokenised on one core. A text that cannot be fails below, in its own game.
    with suppress(Exception):
        chat.encode_all([game.messages[-1]["content"] for game in asked])
    for game in asked:
        with guard(game):
            _add_tokens(game, settings, chat)


def _add_message(game: Game, settings: DialogueSettings) -> None:
    game.turn += 1
    number = game.turn
    left = game.playing.config.max_actions - game.used
    system = "" if settings.brief else words.SYSTEM
    if _grows(game, settings):
        message = words.next_message(game.past[-1][2], number, game.state, left, settings)
    elif settings.context == "full":
        message = words.first_message(game.playing, game.state, settings)
    else:
        message = words.history_message(game.playing, game.past, number, game.state, left, settings)
        game.messages = []
    if not game.messages and system:
        game.messages.append({"role": "system", "content": system})
    game.messages.append({"role": "user", "content": message})


def _grows(game: Game, settings: DialogueSettings) -> bool:
    return settings.context == "full" and game.turn > 1


def _add_tokens(game: Game, settings: DialogueSettings, chat: ChatFormat) -> None:
    growing, message = _grows(game, settings), game.messages[-1]["content"]
    # Templates that rewrite earlier turns (those that drop past thoughts, say) begin a row anew, since its tokens would
    # not be the ones that were sampled.
    if growing and not chat.rewrites:
        row = game.episode.rows[-1]
        row.segments.append(given(chat.next_user(message, game.ended), turn=game.turn))
    else:
        system = "" if settings.brief else words.SYSTEM
        prompt = chat.whole(game.messages) if growing else chat.opening(message, system)
        row = Row([given(prompt, turn=game.turn)])
        game.episode.rows.append(row)
    if game.response_prefix:
        row.segments.append(given(chat.encode(game.response_prefix), role="assistant", turn=game.turn))
    game.prompt = row.tokens  # the very tokens that will be trained on, so that nothing is tokenised twice


def leave(game: Game) -> None:
    """The dialogue has outgrown the model: the episode ends with the turn before, and without what was to be asked."""
    game.episode.finish_reason, game.over = FinishReason.LENGTH, True
    row = game.episode.rows[-1]
    # What was shown and never answered must not look like a turn.
    row.segments = [segment for segment in row.segments if segment.turn != game.turn]
    if not row.segments:
        game.episode.rows.pop()


@dataclass(slots=True)
class _Reaction:
    """What an answer does."""

    game: Game
    answer: Sample
    reply: replies.Reply
    before: str
    valid: bool
    earned: float = 0.0
    executed: list[dict[str, Any]] = field(default_factory=list)
    picture: str = ""
    """What the world looks like after it, where the world draws itself."""


def take_many(games: Sequence[Game], answers: Sequence[Sample], settings: DialogueSettings) -> None:
    """Read the answers, act in the worlds, all at once, and write down what it earned."""
    reactions = []
    for game, answer in zip(games, answers, strict=True):
        with guard(game):
            reaction = _hear(game, answer, settings)
            if reaction is not None:
                reactions.append(reaction)
    place, acting = 0, [reaction for reaction in reactions if reaction.reply.actions]
    while acting:
        actions = [reaction.reply.actions[place] for reaction in acting]
        results = step_many([reaction.game.playing for reaction in acting], actions)
        for reaction, action, result in zip(acting, actions, results, strict=True):
            with guard(reaction.game):
                _note(reaction, action, unwrap(result))
        place += 1
        # Actions of a reply are carried out in lockstep, first with first, so that worlds that wait do so together.
        acting = [one for one in acting if not one.game.over and place < len(one.reply.actions)]
    for reaction in reactions:
        if reaction.game.episode.finish_reason is not FinishReason.ERROR:
            _settle(reaction, settings)


def _hear(game: Game, answer: Sample, settings: DialogueSettings) -> _Reaction | None:
    """Read an answer; None where none came."""
    episode = game.episode
    segments = answer.segments(turn=game.turn)
    # A server that returns its prompt's ids makes trainable rows; one that returns text only makes none.
    if len(game.prompt):
        episode.rows[-1].segments.extend(segments)
    elif answer.prompt is not None:
        episode.rows.append(Row([given(answer.prompt, turn=game.turn), *segments]))
    game.messages.append({"role": "assistant", "content": answer.text})
    game.ended = answer.finish_reason is FinishReason.TOKEN
    if answer.finish_reason is FinishReason.ERROR:
        episode.finish_reason, game.over = FinishReason.ERROR, True
        return None
    form = settings.think, settings.world_model, settings.actions_per_turn, settings.parser
    reply = replies.read(answer.text, *form)
    return _Reaction(game, answer, reply, game.state, bool(reply.actions))


def _note(reaction: _Reaction, action: str, result: Step) -> None:
    """What one action did."""
    game, episode = reaction.game, reaction.game.episode
    game.state, reward, terminated, truncated, info = result
    reaction.earned, game.used = reaction.earned + reward, game.used + 1
    reaction.valid = reaction.valid and info["valid"]
    reaction.picture = str(info.get("picture", ""))
    reaction.executed.append({"action": action, "valid": info["valid"], "effective": info["effective"]})
    episode.success = bool(info["success"])  # some worlds go on after it, and turns may run out before actions do
    if terminated or truncated:
        game.over = True
        episode.finish_reason = (
            FinishReason.GOAL if episode.success else FinishReason.FAILED if terminated else FinishReason.BUDGET
        )


def _settle(reaction: _Reaction, settings: DialogueSettings) -> None:
    """What a turn earned."""
    game, reply, before = reaction.game, reaction.reply, reaction.before
    episode = game.episode
    observed, predicted = reply.body(reply.observation), reply.body(reply.prediction)
    formatted = reaction.valid and reply.formatted
    terms = {"world": reaction.earned, "format": 0.0 if formatted else -settings.format_penalty}
    if settings.world_model and (settings.state_reward or settings.state_penalty):
        # After several actions the prediction is compared with where the last one led.
        true = (observed == before) + (predicted == game.state)
        terms["states"] = settings.state_reward * true - settings.state_penalty * (2 - true)
        episode.terms.setdefault("states", [])
    for name, value in terms.items():
        episode.terms[name].append(value)
    episode.rewards.append(sum(terms.values()))
    game.past.append((before, tuple(step["action"] for step in reaction.executed), reaction.earned))
    episode.info["turns"].append(
        {
            "message": game.messages[-2]["content"],
            "state": before,
            "reply": reaction.answer.text,
            "actions": reaction.executed,
            "reward": episode.rewards[-1],
            "observation": observed,
            "prediction": predicted,
            "next_state": game.state,
            **({"picture": reaction.picture} if reaction.picture else {}),
        }
    )


# Many worlds at once: those that wait for something outside this process wait together --------------------------------

Started = tuple[str, dict[str, Any]]
"""The first observation and what is known of the level."""


def reset_many(
    worlds: Sequence[World], level_seeds: Sequence[int], options: Sequence[dict[str, Any]]
) -> list[Started | Exception]:
    """`reset` of each, or what it raised."""

    def alone(world: World, arguments: tuple[int, dict[str, Any]]) -> Started:
        return world.reset(seed=arguments[0], options=arguments[1])

    return _at_once("reset_many", alone, worlds, list(zip(level_seeds, options, strict=True)))


def step_many(worlds: Sequence[World], actions: Sequence[str]) -> list[Step | Exception]:
    """`step` of each, or what it raised."""
    return _at_once("step_many", lambda world, action: world.step(action), worlds, actions)


def _at_once(
    method: str, alone: Callable[[Any, Any], Result], worlds: Sequence[World], arguments: Sequence[Any]
) -> list[Result | Exception]:
    """By the world's own `method` for many, all worlds of a class together; one after the other where it has none."""
    outcomes: list[Result | Exception | None] = [None] * len(worlds)
    kinds: dict[type, list[int]] = {}
    for place, world in enumerate(worlds):
        kinds.setdefault(type(world), []).append(place)
    for kind, places in kinds.items():
        together = _own(kind, method)
        if together is not None:
            results = together([worlds[i] for i in places], [arguments[i] for i in places])
        else:
            results = [catch(alone, worlds[i], arguments[i]) for i in places]
        for place, result in zip(places, results, strict=True):
            outcomes[place] = result
    return [result for result in outcomes if result is not None]


def _own(kind: type, method: str) -> Callable[..., Any] | None:
    """A class's method for many. Where a subclass has changed what one of them does, it no longer holds."""
    for base in kind.__mro__:
        if method in vars(base):
            function: Callable[..., Any] = getattr(kind, method)
            return function
        if method.removesuffix("_many") in vars(base):
            return None
    return None


def catch(work: Callable[..., Result], *arguments: Any) -> Result | Exception:
    try:
        return work(*arguments)
    except Exception as error:
        return error
