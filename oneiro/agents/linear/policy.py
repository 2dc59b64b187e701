"""A web agent without a language model: a softmax over the actions that a page offers, with hashed features, in numpy.

A candidate is a click on what can be clicked, a name of the intent typed into a field, or a stop with a text of the
page. The policy learns in seconds on a CPU: for demonstrations and tests of whole training loops. It reads what other
agents read: the page as text, and the actions so far (`dialogue.context: actions`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oneiro.agents import reply as replies
from oneiro.agents.game import Game
from oneiro.agents.linear.features import PageFeatures, parts, stems
from oneiro.agents.prompts import compact
from oneiro.episode import Sample
from oneiro.models.locate import METADATA
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_json, write_with

SIZE = 1 << 15
"""Hashed features."""
MAX_CANDIDATES = 400
"""Candidates of a page; later ones are left out, so that a hostile page costs no more than a long one."""
MAX_ANSWER_CHARS = 120
"""Texts up to this length may be an answer: tasks ask for names, numbers and dates, not for paragraphs."""
CLICKABLE_ROLES = frozenset(("link", "button", "option", "checkbox", "radio", "menuitem", "tab"))
FIELD_ROLES = frozenset(("searchbox", "textbox"))
ANSWER_ROLES = frozenset(("StaticText", "cell", "link", "heading", "definition"))
"""Roles whose names may be answers."""
MAX_INTENT_WORDS = 8
"""Words of an intent that are crossed with those of a name."""
NUMBER = re.compile(r"\[(\d+)\]")
WEIGHTS = "linear.npy"
"""The file of a saved policy."""

CACHED_PAGES = 4096
"""Pages whose candidates are kept: training looks at each several times."""

Index = NDArray[np.int32]


@dataclass(frozen=True)
class Choice:
    """What can be done on a page, and the features of each: indices into the weights."""

    actions: list[str]
    features: list[Index]

    def logits(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([weights[own].sum() for own in self.features])

    def chances(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        logits = self.logits(weights)
        raised = np.exp(logits - logits.max())  # the largest is 1, so that nothing overflows
        return raised / raised.sum()


@lru_cache(maxsize=CACHED_PAGES)
def choice(state: str, past: tuple[str, ...]) -> Choice:
    """The candidates of a page after the actions of `past`."""
    page = PageFeatures(state, past)
    intent, names, elements = page.intent, page.names, {element.number: element for element in page.elements}
    numbers = [
        match[1] for line in compact(state).splitlines() if (match := NUMBER.match(line)) and match[1] in elements
    ]
    shown, intent_words = set(numbers), sorted(page.intent_words)[:MAX_INTENT_WORDS]
    # A long list shows only what is selected; what the intent asks for can be chosen all the same.
    hidden = [
        e.number
        for e in page.elements
        if e.role == "option" and e.number not in shown and page.match_words(e.name) == "whole"
    ]
    actions: list[tuple[str, list[str]]] = [
        ("stop []", ["stop", "stop empty", *_cross("stop", intent_words, page.arrived), *page.stop()])
    ]
    before = ""
    for number in sorted([*numbers, *hidden], key=int):
        element = elements[number]
        role, name = element.role, element.name
        met = _compare(name, intent)
        if role in CLICKABLE_ROLES:
            features = ["click", f"click {role} {met}", f"click {role} {name[:40]}", *_cross(role, intent_words, name)]
            actions.append(
                (f"click [{number}]", [*features, *_cross("under", intent_words, before), *page.click(element)])
            )
        elif role in FIELD_ROLES:
            # A field's text is the line below it; lines are numbered in order.
            filled = elements.get(str(int(number) + 1))
            full = "full" if filled is not None and filled.role == "StaticText" else "empty"
            for place, text in enumerate(names):
                for enter in (0, 1):  # with the Enter key, which sends a search, or without
                    features = [
                        f"type {role} {name[:40]} {place} {enter} {full}",
                        f"type {len(names)} {place} {enter} {full}",
                    ]
                    crossed = [
                        *_cross(f"type {place} {enter}", intent_words, name),
                        *page.type(element, text, enter, full),
                    ]
                    actions.append((f"type [{number}] [{text}] [{enter}]", ["type", *features, *crossed]))
        if role in ANSWER_ROLES and name:
            for text, label in [(name, element.label), *parts(name)]:
                if len(text) <= MAX_ANSWER_CHARS and "]" not in text:
                    features = [
                        "stop",
                        f"stop {role} {met}",
                        f"answer after {label.lower()[:40]}",
                        f"answer like {_shape(text)}",
                    ]
                    about = [f"answer to {_compare(label, intent)}", *_cross("answer", intent_words, label)]
                    actions.append((f"stop [{text}]", [*features, *about, *page.answer(element, text, label)]))
        before = name
    last = past[-1].partition(" ")[0] if past else "nothing"
    made = []
    for action, features in actions[:MAX_CANDIDATES]:
        kind = action.partition(" ")[0]
        turn = [f"{kind} at {len(past)}", f"{kind} after {last}", f"again {kind} {action in past}"]
        made.append(hash_features([*features, *turn, *(f"{one} at {len(past)}" for one in features[1:3])]))
    return Choice([action for action, _ in actions[:MAX_CANDIDATES]], made)


def _compare(name: str, intent: str) -> str:
    if name and name.lower() in intent.lower():
        return "named" if len(name) > 3 else "short"
    mine, theirs = set(re.findall(r"\w{3,}", name.lower())), set(re.findall(r"\w{3,}", intent.lower()))
    if mine and mine <= theirs:
        return "covered"
    return "shared" if mine & theirs else "apart"


def _shape(name: str) -> str:
    """A text with its letters and digits forgotten."""
    return re.sub(r"[A-Za-z]+", "a", re.sub(r"\d+", "0", name))[:12]


def _cross(kind: str, intent_words: Sequence[str], name: str) -> list[str]:
    ours = sorted(stems(name))[:4] or ["-"]
    return [f"{kind}:{word}:{other}" for word in intent_words for other in ours]


def hash_features(names: Sequence[str]) -> Index:
    # crc32 and not `hash`, which differs from process to process.
    return np.array(sorted({zlib.crc32(text.encode()) % SIZE for text in names}), np.int32)


def past_actions(message: str) -> tuple[str, ...]:
    return tuple(message.partition("Task: ")[0].strip().splitlines())


@dataclass
class LinearPolicy:
    """Plays by its weights."""

    reads_worlds: ClassVar = False
    independent: ClassVar = True
    temperature: float = 1.0
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(SIZE))

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        samples = []
        for turn in turns:
            offered = choice(turn.state, past_actions(turn.messages[-1]["content"]))
            logits = offered.logits(self.weights)
            if self.temperature:
                # The largest of logits with Gumbel noise is a sample of their softmax: one draw, and no sum of
                # probabilities.
                logits = logits / self.temperature + seeds.generator(seed, turn.seed).gumbel(size=len(logits))
            samples.append(Sample.of_text(replies.write([offered.actions[int(np.argmax(logits))]], think=False)))
        return samples

    def nudge(self, offered: Choice, taken: int, slope: float, rate: float) -> None:
        """A step down a loss whose derivative by the log-probability of `taken` is `slope`."""
        chances = offered.chances(self.weights)
        # The gradient of a softmax: what was taken up, everything by its probability down.
        self.weights[offered.features[taken]] -= rate * slope
        for own, chance in zip(offered.features, chances, strict=True):
            self.weights[own] += rate * slope * chance

    def save(self, folder: Path, metadata: dict[str, Any] | None = None) -> None:
        """With `metadata`, as any agent: `oneiro eval agent --model` plays it."""
        write_with(folder / WEIGHTS, lambda path: _write(path, self.weights))
        if metadata is not None:
            write_json(folder / METADATA, metadata)

    @classmethod
    def load(cls, folder: Path, temperature: float = 1.0) -> LinearPolicy:
        try:
            weights = np.load(folder / WEIGHTS, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise OneiroError(f"the policy at {folder} cannot be read ({error}); delete it") from error
        if weights.shape != (SIZE,) or not np.isfinite(weights).all():
            raise OneiroError(f"the policy at {folder} is of another size, or its numbers are not finite")
        return cls(temperature, weights.astype(np.float64))


def is_linear(folder: str | Path) -> bool:
    """Whether a folder holds such a policy."""
    return (Path(folder).expanduser() / WEIGHTS).is_file()


def _write(path: Path, weights: NDArray[np.float64]) -> None:
    with path.open("wb") as handle:
        np.save(handle, weights)
