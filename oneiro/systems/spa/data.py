"""From play to data: true states in place of imagined ones, by position, as token rows with a cross-entropy weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from oneiro.agents import prompts as words
from oneiro.agents import reply as replies
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.reply import TAG_TOKENS
from oneiro.agents.rollout import start_reply
from oneiro.episode import Row, Segment, given
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.systems.spa.recipe import SpaRecipe, SpaVariant
from oneiro.worlds.base import World

PREDICTED = {"next": "next_state", "present": "state", "shuffled": "shuffled_state"}
"""Where a turn has the state that takes the place of the predicted one."""
STEPS = 10
"""Actions of a random walk that shows what a world's free text looks like."""


def rows_of(
    record: dict[str, Any],
    chat: ChatFormat,
    dialogue: DialogueSettings,
    variant: SpaVariant,
    response_prefix: str,
    keep_malformed: bool,
    learned: Callable[[dict[str, Any]], bool] = lambda turn: True,
) -> list[Row]:
    """The training rows of one recorded episode: one for a growing dialogue, else one per turn, which begins as in
    play.

    A reply without the demanded form is left out, and in a growing dialogue so is all that rests on it, unless
    `keep_malformed`. A turn that is not to be `learned` has no row, or carries no loss in the one it shares with others
    that are.
    """
    rows: list[Row] = []
    taught = 0.0
    full = dialogue.context == "full"
    growing = full and not chat.rewrites
    system = "" if dialogue.brief else words.SYSTEM
    messages = [{"role": "system", "content": system}] if system else []
    for number, turn in enumerate(record["turns"], start=1):
        weight = float(learned(turn))
        # In a full context a turn that is not learned is still the past of those that are.
        if not weight and not full:
            continue
        message = rephrase(turn["message"], dialogue)
        form = dialogue.think, variant.world_model, dialogue.actions_per_turn, dialogue.parser
        reply = replies.read(turn["reply"], *form)
        pieces = write_reply(turn, reply, variant)
        messages.append({"role": "user", "content": message})
        shown, messages = messages, [*messages, {"role": "assistant", "content": "".join(text for _, text in pieces)}]
        malformed = not reply.formatted and not keep_malformed
        if growing and malformed:
            break
        if malformed or not (weight or growing):
            continue
        if growing and rows:
            rows[-1].segments.append(given(chat.next_user(message, ended=True), turn=number))
        else:
            opened = chat.whole(shown) if full and number > 1 else chat.opening(message, system)
            rows.append(Row([given(opened, turn=number)]))
        rows[-1].segments.extend(target(turn, pieces, chat, variant, response_prefix, number, weight))
        taught += weight
    return rows if taught else []  # a row without loss would only cost time


def shuffle_states(records: Iterable[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """The records, whose turns have as `shuffled_state` the next state of another turn at the same level.

    It is never their own next state. Where a level has no other, it is the present one.
    """
    episodes, levels = list(records), dict[int, list[dict[str, Any]]]()
    for record in episodes:
        levels.setdefault(record["seed"], []).extend(record["turns"])
    for level, turns in levels.items():
        rng = seeds.generator(seed, "shuffled states", level)
        for turn in turns:
            others = [t["next_state"] for t in turns if t["next_state"] != turn["next_state"]] or [turn["state"]]
            turn["shuffled_state"] = others[rng.integers(len(others))]
    return episodes


def rephrase(message: str, dialogue: DialogueSettings) -> str:
    """The message with this variant's form of reply: variants with and without a world model share their data."""
    other = dialogue.model_copy(update={"world_model": not dialogue.world_model})
    return message.replace(other.form, dialogue.form)


def write_reply(turn: dict[str, Any], reply: replies.Reply, variant: SpaVariant) -> list[tuple[str, str]]:
    """The reply as this variant writes it, as (tag, text) pieces: with true states, its own beliefs, or none."""
    if not variant.world_model:
        return [("", without_states(reply))]
    truth = turn["state"], turn[PREDICTED[variant.predict]]
    believed = reply.body(reply.observation) or "", reply.body(reply.prediction) or ""
    return replies.substitute(reply, *(truth if variant.true_states else believed))


def target(
    turn: dict[str, Any],
    pieces: list[tuple[str, str]],
    chat: ChatFormat,
    variant: SpaVariant,
    response_prefix: str,
    number: int,
    weight: float,
) -> list[Segment]:
    """The reply to be learned. Thoughts, answer and end token carry the loss, the states too unless they are masked."""
    segments: list[Segment] = []
    start = start_reply(response_prefix, turn["state"])
    # What play gives the agent to begin with is given in training too, and carries no loss.
    left = len(start) if start and "".join(text for _, text in pieces).startswith(start) else 0
    if left:
        segments.append(given(chat.encode(start), "assistant", turn=number))
    for tag, whole in pieces:
        text, left = whole[left:], max(0, left - len(whole))
        own = 0.0 if tag and variant.mask_states else weight
        if text:
            segments.append(given(chat.encode(text), "assistant", tag, number, ce=own))
    return [*segments, given([chat.end], "assistant", turn=number, ce=weight)]


def without_states(reply: replies.Reply) -> str:
    """The reply as an agent without a world model would have written it."""
    text = reply.text
    for tag, span in (("prediction", reply.prediction), ("observation", reply.observation)):
        if span is not None:
            mark = len(tag) + 2
            text = text[: span[0] - mark] + text[span[1] + mark + 1 :]
    return text


def sample_texts(make_world: Callable[[], World], dialogue: DialogueSettings, seed: int, levels: int = 64) -> list[str]:
    """What a run's text looks like, for training a tokenizer: prompts, states, actions and the chat format's words."""
    # Words that every prompt has must be frequent, or the tokenizer would cut them into pieces.
    texts = ["<|im_start|>system user assistant\n<|im_end|>\n"] * levels
    for level in range(levels):
        world = make_world()
        state, _ = world.reset(seed=seed + level, options={"split": "train"})
        texts.append(words.first_message(world, state, dialogue))
        if world.actions:
            texts.append(replies.write([f" {replies.SEPARATOR} ".join(world.actions)], state, state))
            texts += [replies.write([action]) for action in world.actions]
        else:
            texts += random_walk(world, state, seed + level)
    return texts


def random_walk(world: World, state: str, seed: int) -> Iterator[str]:
    """Replies with the actions and states of a short random episode, for worlds whose actions are free text."""
    rng = seeds.generator("sample texts", seed)
    for _ in range(STEPS):
        action = world.random_action(rng)
        after, _, terminated, truncated, _ = world.step(action)
        yield replies.write([action], state, after)
        state = after
        if terminated or truncated:
            return


def create_tiny(recipe: SpaRecipe) -> LanguageModel:
    """Random weights, and a tokenizer trained on the worlds' own text."""
    played = [recipe.sft_data_of(recipe.variant(name)) for name in recipe.sft_variants]
    if any(settings.policy == "self" for _, settings in played):
        raise OneiroError("'tiny' cannot play yet: set self_play.policy=random (or mixture)")
    acted = [recipe.world_of(recipe.variant(name)) for name in recipe.variants]
    worlds = [*acted, *(world for world, _ in played)]
    distinct = [world for place, world in enumerate(worlds) if world not in worlds[:place]]
    texts = [text for world in distinct for text in sample_texts(world.maker(), recipe.dialogue, recipe.seed)]
    return languages.create_tiny(recipe.model, texts, seeds.derive(recipe.seed, "weights"), TAG_TOKENS)
