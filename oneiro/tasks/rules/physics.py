"""The prediction task of drawn physics: from a few steps in other rooms, where does a word lead the walker here?

    from oneiro.tasks.rules.physics_data import CaseSampler
    case = CaseSampler("eval", seed=0)(0)
    PhysicsPredictor().prompt(case)[0]["content"]    # ` . A | . zo U ka 0 mu UU ri L` for each sighting, then the query

The answer is a displacement: letters of unit moves, or `0`. In the prompt each glyph, word and displacement stands
behind a space, so that it is one token wherever it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from oneiro.recipe import Settings
from oneiro.tasks.base import Flaw, Malformed, Messages, Predictor, Reward
from oneiro.worlds.rules.physics import DISPLACEMENTS

STAYED = "0"
ABOUT = (
    "A walker says a word and moves. What the words and the tiles do is the same in all these rooms. Behind each word "
    "is how far the walker came: U, R, D, L, or 0 where it stayed.\n"
)
READABLE = frozenset(DISPLACEMENTS)
MAX_ANSWER_CHARS = 64  # a displacement has 4 letters; what is longer is none


@dataclass(frozen=True, slots=True)
class Sighting:
    """A room as a walker saw it, and how far it came by each word that was tried there."""

    text: str
    tries: tuple[tuple[str, str], ...]
    """Word and displacement."""
    patch: str
    """The four tiles beside the walker, for the lookup that knows no more."""


@dataclass(frozen=True, slots=True)
class PhysicsSituation:
    """All a predictor may know: what was seen in other rooms, this room, and the word about to be said."""

    context: tuple[Sighting, ...]
    text: str
    word: str


@dataclass(frozen=True, slots=True)
class PhysicsCase(PhysicsSituation):
    """A situation with its outcome."""

    after: str
    """The true displacement."""
    id: str
    rules: str
    """Names the physics: what intervals are over."""
    patch: str
    """As in a sighting."""

    def steps(self) -> Iterator[PhysicsCase]:
        """Every step of the context and the query, each as a case without context: what a lookup remembers."""
        for sighting in self.context:
            for word, after in sighting.tries:
                yield replace(self, context=(), text=sighting.text, word=word, after=after, patch=sighting.patch)
        yield replace(self, context=())


class PhysicsPredictorConfig(Settings):
    """What the prompt shows."""

    view: Literal["sight", "map"] = "sight"
    """sight: two tiles in each direction. map: the whole room."""
    explain: bool = False
    """Begin with two sentences about the form, for a model that can read."""
    repeat_word: bool = False
    """Outcomes begin with their word (`zo zoU ka ka0`), in the prompt and in answers. As one token such an outcome says
    what was done and what came of it: attention finds what a word did in one look, where it otherwise has to learn to
    look at a word and then behind it, which `tiny` learns late or not at all."""


class PhysicsPredictor(Predictor[PhysicsCase, Messages, str, str]):
    """Exact prediction of the displacement. The reward is 1 for the exact one and 0 otherwise."""

    name: ClassVar[str] = "physics"

    def __init__(self, config: PhysicsPredictorConfig | None = None) -> None:
        self.config = config if config is not None else PhysicsPredictorConfig()

    def pieces(self, case: PhysicsSituation) -> Iterator[tuple[str, bool]]:
        """The prompt in parts, each with whether it is an outcome; SFT learns all of these besides the answer."""
        if self.config.explain:
            yield ABOUT, False
        for sighting in case.context:
            yield _add_spaces(sighting.text), False
            for word, after in sighting.tries:
                yield f" {word}", False
                yield self._outcome(word, after), True
            yield "\n", False
        yield f"{_add_spaces(case.text)} {case.word}".rstrip(), False  # a policy is asked without a word

    def prompt(self, case: PhysicsSituation) -> Messages:
        return [{"role": "user", "content": "".join(text for text, _ in self.pieces(case))}]

    def target(self, case: PhysicsCase) -> str:
        return self._outcome(case.word, case.after)

    def _outcome(self, word: str, after: str) -> str:
        return f" {word}{after}" if self.config.repeat_word else f" {after}"

    def parse(self, text: str, case: PhysicsSituation) -> str | Malformed:
        answer = text[:MAX_ANSWER_CHARS].strip()
        if not answer:
            return Malformed(Flaw.EMPTY)
        answer = answer.removeprefix(case.word)  # also where it need not be there: no displacement begins with a word
        return answer if answer in READABLE else Malformed(Flaw.SHAPE)

    def reward(self, text: str, case: PhysicsCase) -> Reward:
        right = float(self.parse(text, case) == case.after)
        return Reward(right, {"exact": right})

    def metrics(self, text: str, case: PhysicsCase) -> dict[str, float]:
        prediction = self.parse(text, case)
        return {"exact": float(prediction == case.after), "parsed": float(not isinstance(prediction, Malformed))}

    def baselines(self, train: Sequence[PhysicsCase] = ()) -> dict[str, Callable[[PhysicsCase], str]]:
        """No change; three lookups, in training by the whole text and by the patch, and in the prompt; the truth."""
        lookups: dict[str, Callable[[PhysicsCase], str]] = {}
        if len(train):
            lookups = {"lookup": TextLookup(train), "lookup by patch": PatchLookup(train)}
        return {
            "no change": lambda case: STAYED,
            **lookups,
            "copy from the prompt": copy_outcome,
            "perfect": self.target,
        }


def _add_spaces(text: str) -> str:
    """Every line begins with a space, as every other glyph has one."""
    return " " + text.replace("\n", "\n ")


def copy_outcome(case: PhysicsSituation) -> str:
    """What the same word did most often in the prompt, of equally many the last; no change where it was not said."""
    outcomes = [after for sighting in case.context for word, after in sighting.tries if word == case.word]
    counts = Counter(outcomes)
    return max(reversed(outcomes), key=lambda after: counts[after]) if outcomes else STAYED


class TextLookup:
    """The outcome of the training step with the same word whose text differs in the fewest places."""

    def __init__(self, train: Sequence[PhysicsCase]) -> None:
        self._ids: dict[str, int] = {}
        rows: dict[tuple[str, int], list[PhysicsCase]] = {}
        for case in train:
            rows.setdefault((case.word, len(case.text.split())), []).append(case)
        self._rows = {
            key: (np.stack([self._codes(case.text) for case in cases]), [case.after for case in cases])
            for key, cases in rows.items()
        }

    def __call__(self, case: PhysicsSituation) -> str:
        known = self._rows.get((case.word, len(case.text.split())))
        if known is None:
            return STAYED
        codes, outcomes = known
        return outcomes[int((codes != self._codes(case.text)).sum(axis=1).argmin())]

    def _codes(self, text: str) -> NDArray[np.int32]:
        return np.array([self._ids.setdefault(part, len(self._ids)) for part in text.split()], np.int32)


class PatchLookup:
    """What the word did most often in training beside the same four tiles; else what it did most often at all."""

    def __init__(self, train: Sequence[PhysicsCase]) -> None:
        self._known: dict[tuple[str, str], Counter[str]] = {}
        for case in train:
            for patch in (case.patch, ""):
                self._known.setdefault((patch, case.word), Counter())[case.after] += 1

    def __call__(self, case: PhysicsCase) -> str:
        counts = self._known.get((case.patch, case.word)) or self._known.get(("", case.word)) or Counter((STAYED,))
        return max(counts, key=lambda after: (counts[after], after))
