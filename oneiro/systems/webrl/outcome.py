"""Outcome models: who says whether a trajectory did its task, and how far that can be trusted.

All give P(done). The trained ones (`features`, `lm`) learn from trajectories of training tasks with the labels of their
graders: demonstrations, perturbed demonstrations, and the SFT policy's own. The graders are always known here, so every
phase reports accuracy, precision and recall; a model below a set precision does not start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oneiro.agents import reply as replies
from oneiro.episode import Episode, Row, given
from oneiro.learning.logistic import fit_logistic, sigmoid
from oneiro.models.chat import ChatFormat
from oneiro.report.stats import wilson
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.systems.webrl.episodes import intent_of, is_valid, key_of, turns_of
from oneiro.systems.webrl.recipe import OutcomeSettings

YES, NO = "YES", "NO"
STOP = re.compile(r"(?:stop \[(?P<stop>.*)\]|exit\(message=(?P<exit>.*)\))\s*$", re.DOTALL)
HASHED = 256
"""Features that hash pairs of words."""


class OutcomeModel(Protocol):
    """Episodes -> P(done) of each."""

    def scores(self, episodes: Sequence[Episode]) -> list[float]: ...


class Oracle:
    """The task's own grader."""

    def scores(self, episodes: Sequence[Episode]) -> list[float]:
        return [float(t.success) for t in episodes]


@dataclass(frozen=True)
class NoisyOracle:
    """The grader, wrong at given rates; the same trajectory is always judged alike."""

    false_positives: float
    false_negatives: float
    seed: int

    def scores(self, episodes: Sequence[Episode]) -> list[float]:
        scores = []
        for t in episodes:
            flip = generator(self.seed, "noisy outcome", key_of(t), len(turns_of(t))).random()
            wrong = flip < (self.false_negatives if t.success else self.false_positives)
            scores.append(float(t.success != wrong))
        return scores


# What can be seen -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What a trajectory shows, without its grader."""

    actions: list[str]
    stopped: bool
    answer: str
    page: str
    """The page on which the last action was decided, in lower case."""
    required: list[str]
    """Names, quotes and numbers of the intent, in lower case."""


def evidence(episode: Episode) -> Evidence:
    """Read it off the replies and pages."""
    turns, intent = turns_of(episode), intent_of(episode)
    actions = [replies.action_in(turn["reply"]) for turn in turns]
    last = STOP.fullmatch(actions[-1]) if actions else None
    answer = "" if last is None else (last["stop"] if last["stop"] is not None else last["exit"]).strip("\"' ")
    quoted = re.findall(r'"([^"]{2,})"', intent)
    names = re.findall(r"(?<!^)(?<![.?!] )\b[A-Z][\w'&/.-]*(?: (?:[A-Z&][\w'&/.-]*|of))*", intent)
    numbers = re.findall(r"\b[\w/-]*\d[\w/-]*\b|\b\w+/[\w-]+", intent)
    required = [
        word.lower().rstrip(".,") for word in dict.fromkeys([*quoted, *(names if not quoted else []), *numbers])
    ]
    return Evidence(actions, last is not None, answer, turns[-1]["state"].lower(), required)


def asks(intent: str) -> bool:
    """Whether an answer is wanted."""
    return bool(re.search(r"\?|^(?:Give|Tell|List|Count|Name|Find the|Look up|What|Which|How|Who)\b", intent))


class Rules:
    """Visible evidence only: it stopped by itself; a question has an answer that stands on the page, a request has
    none; what the intent names was typed or is on the page.
    """

    def scores(self, episodes: Sequence[Episode]) -> list[float]:
        return [self._score(evidence(t), t) for t in episodes]

    def _score(self, seen: Evidence, t: Episode) -> float:
        if not seen.stopped or not all(map(is_valid, turns_of(t))):
            return 0.0
        answered = bool(seen.answer)
        if answered != asks(intent_of(t)) or (answered and seen.answer.lower() not in seen.page):
            return 0.0
        done = " ".join(seen.actions).lower()
        return float(all(word in done or word in seen.page for word in seen.required))


class Features:
    """Logistic regression on what the trajectory shows; numpy only, trained in a second."""

    def __init__(self, episodes: Sequence[Episode], seed: int = 0) -> None:
        X = np.stack([features(t) for t in episodes])
        y = np.array([float(t.success) for t in episodes])
        # Both classes weigh the same.
        weight = np.where(y > 0, 0.5 / max(1e-9, y.mean()), 0.5 / max(1e-9, 1 - y.mean()))
        self.weights = fit_logistic(X, y, weight)

    def scores(self, episodes: Sequence[Episode]) -> list[float]:
        if not episodes:
            return []
        return [float(p) for p in sigmoid(np.stack([features(t) for t in episodes]) @ self.weights)]


def features(t: Episode) -> NDArray[np.float64]:
    """[F]: evidence as numbers, a constant, and hashed pairs of an intent's word and the kind of the last actions."""
    seen = evidence(t)
    done = " ".join(seen.actions).lower()
    shown = [word in done or word in seen.page for word in seen.required]
    repeats = len(seen.actions) - len(set(seen.actions))
    on_page = bool(seen.answer) and seen.answer.lower() in seen.page
    plain = [
        1.0,
        seen.stopped,
        bool(seen.answer) == asks(intent_of(t)),
        on_page,
        on_page or not seen.answer,
        np.mean(shown) if shown else 1.0,
        all(shown),
        all(map(is_valid, turns_of(t))),
        repeats > 0,
        len(turns_of(t)) / 10,
    ]
    hashed = np.zeros(HASHED)
    kinds = "+".join(action.split(" ")[0].split("(")[0] for action in seen.actions[-3:])
    for word in set(re.findall(r"[a-z]+", intent_of(t).lower())):
        hashed[int(generator("feature", word, kinds, len(turns_of(t))).integers(HASHED))] = 1.0
    return np.concatenate([np.array(plain, np.float64), hashed])


# A language model as judge --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JudgePrompt:
    """Instruction, action history and last page as a chat; what does not fit is cut from the page."""

    chat: ChatFormat
    max_tokens: int

    def tokens(self, t: Episode) -> NDArray[np.int32]:
        """Up to where the verdict stands. The page's end is cut so that all else, the assistant header last, stays."""
        turns = turns_of(t)
        history = "\n".join(replies.action_in(turn["reply"]).replace("\n", "; ") for turn in turns)
        before = (
            f"Did the agent do what the user asked? Answer {YES} or {NO}.\nUser intent: {intent_of(t)}\n"
            f"Action history:\n{history}\nCurrent page:\n"
        )
        bare = len(self.chat.opening(before))
        page = self.chat.encode(turns[-1]["state"])
        room = max(0, self.max_tokens - bare)
        mark = "\ue000page\ue001"
        whole = self.chat.before_user + before + mark + self.chat.to_reply
        head, tail = whole.split(mark)
        return np.concatenate([self.chat.encode(head), page[:room], self.chat.encode(tail)]).astype(np.int32)

    def row(self, t: Episode, verdict: bool, weight: float = 1.0) -> Row:
        """Prompt and verdict, which carries the loss."""
        return Row([given(self.tokens(t)), given(self.chat.encode(YES if verdict else NO), "assistant", ce=weight)])


@dataclass(frozen=True)
class LanguageJudge:
    """P(YES) / (P(YES) + P(NO)) by a language model."""

    prompt: JudgePrompt
    logprobs: Callable[[Sequence[Row]], list[float]]
    """Rows -> the log-probability of the tokens of each that carry cross-entropy."""

    def scores(self, episodes: Sequence[Episode]) -> list[float]:
        rows = [self.prompt.row(t, verdict) for t in episodes for verdict in (True, False)]
        logprobs = self.logprobs(rows)
        pairs = zip(logprobs[::2], logprobs[1::2], strict=True)
        return [float(sigmoid(yes - no)) for yes, no in pairs]


# Training data, labels, trust -----------------------------------------------------------------------------------------


def perturb(t: Episode, seed: int) -> list[Episode]:
    """A demonstration made wrong in ways that agents fail: stopped early, a wrong answer, no answer. All are failures:
    what was left out is what the task asks for.
    """
    rng, turns = generator(seed, "spoilt", key_of(t)), turns_of(t)

    def end_early(kept: list[dict[str, Any]], action: str) -> Episode:
        last = {**kept[-1], "reply": replies.write([action], think=False)}
        return replace(t, rows=[], success=False, info={**t.info, "turns": [*kept[:-1], last]})

    made = [end_early(turns[:1], "stop []")] if len(turns) > 1 else []
    seen = evidence(t)
    if seen.answer:
        texts = [name for name in re.findall(r"'([^'\n]{2,60})'", turns[-1]["state"]) if name != seen.answer]
        other = texts[int(rng.integers(len(texts)))] if texts else "nothing"
        made += [end_early(turns, f"stop [{answer}]") for answer in (other, "")]
    return made


def balance(episodes: Sequence[Episode], seed: int) -> list[Episode]:
    """As many failures as successes, shuffled."""
    rng = generator(seed, "balanced outcomes")
    parts = [[t for t in episodes if t.success is done] for done in (True, False)]
    count = min(map(len, parts))
    chosen = [part[i] for part in parts for i in rng.permutation(len(part))[:count]]
    return [chosen[i] for i in rng.permutation(len(chosen))]


def label(score: float, settings: OutcomeSettings) -> int | None:
    """1 or 0; None in the abstain band."""
    if settings.abstain is not None and settings.abstain[0] < score < settings.abstain[1]:
        return None
    return int(score >= settings.threshold)


def confusion(labels: Sequence[int | None], truth: Sequence[bool]) -> dict[str, Any]:
    """Counts and rates of the labels that were given."""
    pairs = [(given, done) for given, done in zip(labels, truth, strict=True) if given is not None]
    counts = {
        "true_positives": sum(given == 1 and done for given, done in pairs),
        "false_positives": sum(given == 1 and not done for given, done in pairs),
        "true_negatives": sum(given == 0 and not done for given, done in pairs),
        "false_negatives": sum(given == 0 and done for given, done in pairs),
        "abstained": len(labels) - len(pairs),
    }
    right, good = counts["true_positives"], counts["true_positives"] + counts["false_positives"]
    rates = {
        "accuracy": wilson(right + counts["true_negatives"], len(pairs)).value,
        "precision": wilson(right, good).value,
        "recall": wilson(right, right + counts["false_negatives"]).value,
    }
    return {**counts, **rates}


def require_precision(measured: dict[str, Any], settings: OutcomeSettings) -> None:
    """Refuse to train on labels that are too often wrong; a `min_precision` of 0 accepts all."""
    precision = measured["precision"]
    if settings.min_precision > 0 and (precision is None or precision < settings.min_precision):
        shown = "is unknown: it called nothing a success" if precision is None else f"is {precision:.2f}"
        raise OneiroError(
            f"the precision of outcome={settings.name} on held-out trajectories {shown}, below "
            f"outcome.min_precision={settings.min_precision:g}; train it on more (outcome.trajectories), or use "
            "outcome=oracle"
        )
