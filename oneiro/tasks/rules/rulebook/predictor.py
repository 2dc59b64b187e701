"""Rulebook games as a prediction task: given rules, objects and an action, which properties change?

predictor = RulebookPredictor(RulebookPredictorConfig(context="rules"))
messages = predictor.prompt(case)
predictor.reward("mib.heat 4; tok.open yes", case).value
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from oneiro.recipe import Settings
from oneiro.runtime import seeds
from oneiro.tasks.base import Flaw, Malformed, Messages, Predictor, Reward
from oneiro.tasks.rules.rulebook.cases import Observed, RuleCase, edits, obey, with_wrong_rules
from oneiro.tasks.textgame.parse import Prediction
from oneiro.tasks.textgame.score import EXACT_SHARE, AnswerOutcome, AskedStep, judge
from oneiro.worlds.rules.rulebook.drawing import RulebookGame
from oneiro.worlds.rules.rulebook.language import LARGEST, Property, Ref, Things, Value, holds, write

Context = Literal["rules", "examples", "both", "none"]
NOTHING = "nothing"
"""The answer where nothing changes."""
MAX_ANSWER_CHARS = 2000  # nine objects with four properties each, all changed, have 700
MAX_EDITS = 64
ACTION_LABEL = "Do"
"""What the line of the question begins with; everything before it is the same for all actions of a scene. One line
break stands before it: tokenizers join two of them at the end of a text and not within one."""
ARROW = "->"
"""Between a step that was seen and what it changed, and between an effect and the new value."""
CONCLUSION = "=>"
"""Between reasons and the answer."""
_SYMBOL = re.compile(r"\n|[A-Za-z]+|\d|[.,:;]|[^\sA-Za-z\d.,:;]+")
_EDIT = re.compile(r"([a-z]{1,12})\.([a-z]{1,12}) ([a-z]{1,12}|[0-9])")


class RulebookPredictorConfig(Settings):
    """What the prompt holds and how answers are rewarded."""

    context: Context = "rules"
    """What is known of the game: its rules, steps that were observed in it, both, or neither."""
    examples: int = Field(8, ge=1, le=32)
    """Observed steps, where the context has them; each verb in its turn."""
    objects: Literal["all", "named"] = "all"
    """Show all objects before the action; or, beside it, only those that it names, which a small model need not look
    for. Rules of the clock change others too: `named` is for books of at most 3 rules, which have no clock."""
    reward: Literal["binary", "shaped"] = "shaped"
    """1 for an exact answer; or half of that and half the overlap of true and claimed changes."""
    reason: bool = False
    """Answers begin with a trace: the rules that are looked at, each copied with the values that it finds and what it
    does. Each part of a rule has its number. Only what stands behind the trace is graded, and an answer without one
    counts too."""
    spaced: bool = False
    """A space before every word and sign, in prompts and answers. In the tokenizer of `tiny` a name is then one token,
    the same one in rules, states, actions and answers: a model from nothing need not learn that two are the same."""

    @property
    def observed(self) -> int:
        return self.examples if self.context in ("examples", "both") else 0


class RulebookPredictor(Predictor[RuleCase, Messages, str, Prediction]):
    """The prediction task over rulebook games. An answer names the properties that change, and nothing else."""

    name: ClassVar[str] = "rulebook"

    def __init__(self, config: RulebookPredictorConfig | None = None) -> None:
        self.config = config if config is not None else RulebookPredictorConfig()

    def prompt(self, case: RuleCase) -> Messages:
        """One user message: the context, the objects before the step, the action."""
        config, game = self.config, case.game
        parts = []
        if config.context in ("rules", "both"):
            rules = (case.shown or game.book).rules
            listed = [rule.show(place if config.reason else None) for place, rule in enumerate(rules, 1)]
            parts.append("\n".join(["Rules:", *listed]))
        if config.observed:
            seen = "\n".join(describe_step(game, one) for one in case.examples[: config.observed])
            parts.append(f"Seen:\n{seen}")
        # The clock's rules apply in steps whose number three divides: the number of this step, not of those taken.
        if config.objects == "all":
            rows = "\n".join(game.describe(case.things, place) for place in range(len(case.things)))
            parts.append(f"Step {case.clock + 1}:\n{rows}\n{ACTION_LABEL}: {case.action}")
        else:
            rows = "\n".join(game.describe(case.things, place) for place in case.chosen)
            parts.append(f"Step {case.clock + 1}\n{ACTION_LABEL}: {case.action}\n{rows}")
        content = "\n\n".join(parts)
        return [{"role": "user", "content": space(content) if config.spaced else content}]

    def outcome(self, case: RuleCase) -> str:
        """The true changes, in the order in which rules make them."""
        changes = edits(case.things, case.outcome.things)
        order = {(firing.thing, firing.property): place for place, firing in enumerate(case.outcome.firings)}
        return self.write(case, {place: changes[place] for place in sorted(changes, key=lambda place: order[place])})

    def target(self, case: RuleCase) -> str:
        """What came of the step, after a trace of the rules where answers have one."""
        answer = self.outcome(case)
        if not self.config.reason:
            return answer
        trace = f"{write_trace(case)} {CONCLUSION}".lstrip()
        return space(trace) + answer if self.config.spaced else f"{trace} {answer}"

    def write(self, case: RuleCase, changes: dict[tuple[int, int], str]) -> str:
        text = write_edits(case.game, changes)
        return space(text) if self.config.spaced else text

    def parse(self, text: str, case: RuleCase) -> Prediction | Malformed:
        things = self.read(text, case)
        return things if isinstance(things, Malformed) else Prediction(case.game.state(things), None)

    def read(self, text: str, case: RuleCase) -> Things | Malformed:
        """The objects after the step, as an answer claims."""
        text = text.rpartition(CONCLUSION)[2]
        text = (unspace(text) if self.config.spaced else text).strip()
        if not text:
            return Malformed(Flaw.EMPTY)
        if text == NOTHING:
            return case.things
        items = text.split(";") if len(text) <= MAX_ANSWER_CHARS else []
        if not 0 < len(items) <= MAX_EDITS:
            return Malformed(Flaw.BROKEN, "too long for an answer")
        places, names = case.game.book.places, case.game.objects
        claimed: dict[tuple[int, int], Value] = {}
        for item in items:
            match = _EDIT.fullmatch(item.strip())
            if match is None or match[1] not in names or match[2] not in places:
                return Malformed(Flaw.SHAPE, f"no object and property reads '{item.strip()[:40]}'")
            at = names.index(match[1]), places[match[2]]
            values = [value for value in case.game.book.properties[at[1]].values if write(value) == match[3]]
            if not values:
                return Malformed(Flaw.SHAPE, f"'{match[3]}' is no value of '{match[2]}'")
            if claimed.setdefault(at, values[0]) != values[0]:
                return Malformed(Flaw.CONFLICT, f"{match[1]}.{match[2]} is given twice")
        return tuple(
            tuple(claimed.get((thing, place), old) for place, old in enumerate(row))
            for thing, row in enumerate(case.things)
        )

    def judge(self, text: str, case: RuleCase) -> AnswerOutcome:
        """The strict comparison with the truth, by the scorer of the text games."""
        game = case.game
        step = AskedStep(game.state(case.things), game.state(case.outcome.things))
        return judge(step, self.parse(text, case))

    def reward(self, text: str, case: RuleCase) -> Reward:
        return self.pay(self.judge(text, case))

    def pay(self, outcome: AnswerOutcome) -> Reward:
        """The reward of a judged answer."""
        if self.config.reward == "binary":
            return Reward(float(outcome.exact), {"exact": float(outcome.exact)})
        exact = EXACT_SHARE * outcome.exact
        return Reward(outcome.shaped, {"exact": exact, "overlap": outcome.shaped - exact})

    def metrics(self, text: str, case: RuleCase) -> dict[str, float]:
        outcome = self.judge(text, case)
        return {"exact": float(outcome.exact), "overlap": outcome.overlap, "parsed": float(outcome.flaw is None)}

    def baselines(self, train: Sequence[RuleCase] = ()) -> dict[str, Callable[[RuleCase], str]]:
        """Nothing changes, three lookups, the rules of another game carried out, and the truth."""
        answers: dict[str, Callable[[RuleCase], str]] = {"no change": lambda case: NOTHING}
        if len(train):
            text, verb = RuleTextLookup(train, self.shown), VerbLookup(train)
            answers["lookup, whole text"] = lambda case: self.write(case, text(case))
            answers["lookup, same verb"] = lambda case: self.write(case, verb(case))
        if self.config.observed:
            inside = PromptLookup(self.config.observed)
            answers["lookup, in the prompt"] = lambda case: self.write(case, inside(case))
        answers["another game's rules, carried out"] = self.answer_by_other_rules
        return {**answers, "perfect": self.target}

    def shown(self, case: RuleCase) -> str:
        return self.prompt(case)[0]["content"]

    def answer_by_other_rules(self, case: RuleCase) -> str:
        book = with_wrong_rules(case, 0).shown
        assert book is not None
        return self.write(case, edits(case.things, obey(case, book).things))


def write_edits(game: RulebookGame, changes: dict[tuple[int, int], str]) -> str:
    """Changes as a model is to answer them."""
    names, kinds = game.objects, game.book.properties
    listed = [f"{names[thing]}.{kinds[place].name} {value}" for (thing, place), value in changes.items()]
    return "; ".join(listed) or NOTHING


def write_trace(case: RuleCase) -> str:
    """The rules that are looked at in a step: each as the book has it, then the objects that it is about, the values
    that its conditions find, up to one that fails, and what becomes of the value that it changes.

    1 lak X Y: if 1 not Y.full, 1 Y.count -= X.count | gag kaz: kaz.full no ok, kaz.count 9 gag.count 6 -> 3
    """
    lines, last = list[str](), -1
    for one in case.outcome.attempts:
        rule, objects = case.game.book.rules[one.rule], [case.game.objects[thing] for thing in one.chosen]
        parts = [
            f"{_write_properties(objects, (condition.ref, condition.value), values)} "
            f"{'ok' if holds(condition.relation, *values) else 'fails'}"
            for condition, values in zip(rule.conditions, one.operands, strict=False)
        ]
        if one.effect is not None:
            *values, new = one.effect
            parts.append(
                f"{_write_properties(objects, (rule.effect.ref, rule.effect.value), values)} {ARROW} {write(new)}"
            )
        copied = f"{rule.show(one.rule + 1)} | " if one.rule != last else ""
        lines.append(f"{copied}{' '.join(objects)}: {', '.join(parts)}")
        last = one.rule
    return "; ".join(lines)


def _write_properties(objects: Sequence[str], terms: Sequence[Value | Ref | None], values: Sequence[Value]) -> str:
    """`kaz.count 9 gag.count 6`: what those terms are that are properties of objects."""
    pairs = zip(terms, values, strict=True)
    known = ((term, value) for term, value in pairs if isinstance(term, Ref))
    return " ".join(f"{objects[term.role == 'Y']}.{term.property} {write(value)}" for term, value in known)


def describe_step(game: RulebookGame, one: Observed) -> str:
    """A step that was seen: the objects it names and those it changes, and what changed."""
    understood, changes = game.understand(one.action), edits(one.things, one.after)
    shown = dict.fromkeys([*(understood[1] if understood else ()), *(thing for thing, _ in changes)])
    rows = "; ".join(game.describe(one.things, place) for place in shown)
    return f"{rows}. {one.clock + 1}: {one.action} {ARROW} {write_edits(game, changes)}"


def cut(prompt: str) -> tuple[str, str]:
    """A prompt as the part that all actions of a scene share, and the rest."""
    at = prompt.rfind("\n", 0, prompt.rfind(ACTION_LABEL)) + 1
    return prompt[:at], prompt[at:]


def space(text: str) -> str:
    """A text with one space before every word and sign: `nib.heat 4` is ` nib . heat 4`."""
    return "".join(symbol if symbol == "\n" else f" {symbol}" for symbol in _SYMBOL.findall(text))


def unspace(text: str) -> str:
    """What `space` was given, but for spaces at the ends of lines. Total: any text."""
    return re.sub(r" *(\.) *| +([,:;])", lambda sign: sign[1] or sign[2], text)


def symbols(texts: Sequence[str]) -> list[str]:
    """Every word and sign of spaced texts, each to be one token."""
    return sorted({f" {symbol}" for text in texts for symbol in _SYMBOL.findall(text) if symbol != "\n"})


# Lookups --------------------------------------------------------------------------------------------------------------

# They learn nothing: the answer of another case, moved to this one. Games have different words, so an answer is
# remembered without them: which of the action's objects changes, which property by its kind and rank, and how (a number
# by its difference).


Change = tuple[int, str, int, Value]
"""The object's place in the action (or beyond, counted among the others), the property's kind and rank, what happens to
it: the difference of a number, the value of a flag, the rank of a word."""
Pattern = tuple[Change, ...]
Edits = dict[tuple[int, int], str]

BUCKETS = 512
"""Numbers that a text becomes: words are counted in so many places."""
_WORD = re.compile(r"[a-z]+|\S")


def pattern(case: RuleCase, after: Things) -> Pattern:
    """What changes, without names."""
    order, ranks = _order(case), _ranks(case.game.book.properties)
    changes = []
    for role, thing in enumerate(order):
        for place, (old, new) in enumerate(zip(case.things[thing], after[thing], strict=True)):
            if old != new:
                changes.append((role, *ranks[place], _difference(case.game.book.properties[place], old, new)))
    return tuple(changes)


def transplant(changes: Pattern, case: RuleCase) -> Edits:
    """The same changes in another game, where it has such objects and properties."""
    order, kinds = _order(case), case.game.book.properties
    places = {rank: place for place, rank in enumerate(_ranks(kinds))}
    moved: Edits = {}
    for role, kind, rank, how in changes:
        if role < len(order) and (kind, rank) in places:
            thing, place = order[role], places[kind, rank]
            old, new = case.things[thing][place], how
            if kind == "number":
                new = min(LARGEST, max(0, int(old) + int(how)))
            elif kind == "word":
                new = kinds[place].words[int(how)]
            if new != old:
                moved[thing, place] = write(new)
    return moved


def _order(case: RuleCase) -> list[int]:
    """The objects that the action names, then the others."""
    return [*case.chosen, *(thing for thing in range(len(case.things)) if thing not in case.chosen)]


def _ranks(kinds: Sequence[Property]) -> list[tuple[str, int]]:
    counts = Counter[str]()
    ranks: list[tuple[str, int]] = []
    for kind in kinds:
        ranks.append((kind.kind, counts[kind.kind]))
        counts[kind.kind] += 1
    return ranks


def _difference(kind: Property, old: Value, new: Value) -> Value:
    if kind.kind == "number":
        return int(new) - int(old)
    return kind.words.index(str(new)) if kind.kind == "word" else new


class RuleTextLookup:
    """The training case whose prompt has most words in common with this one."""

    def __init__(self, train: Sequence[RuleCase], shown: Callable[[RuleCase], str]) -> None:
        self.train, self.shown = train, shown
        self.vectors_NB = np.stack([self._vector(case) for case in train])

    def __call__(self, case: RuleCase) -> Edits:
        near = self.train[int(np.argmax(self.vectors_NB @ self._vector(case)))]
        return transplant(pattern(near, near.outcome.things), case)

    def _vector(self, case: RuleCase) -> NDArray[np.float32]:
        counts = np.zeros(BUCKETS, np.float32)
        for word, times in Counter(_WORD.findall(self.shown(case))).items():
            counts[_bucket(word)] += times
        return counts / np.linalg.norm(counts)


_BUCKETS: dict[str, int] = {}


def _bucket(word: str) -> int:
    if word not in _BUCKETS:
        _BUCKETS[word] = seeds.derive("bucket", word) % BUCKETS
    return _BUCKETS[word]


class VerbLookup:
    """What the same verb did most often in training; of a verb that training never had, what any verb did."""

    def __init__(self, train: Sequence[RuleCase]) -> None:
        counts: dict[str, Counter[Pattern]] = defaultdict(Counter)
        for case in train:
            if case.changed:
                changes = pattern(case, case.outcome.things)
                for verb in (case.action.split()[0], ""):
                    counts[verb][changes] += 1
        self.common = {verb: count.most_common(1)[0][0] for verb, count in counts.items()}

    def __call__(self, case: RuleCase) -> Edits:
        return transplant(self.common.get(case.action.split()[0], self.common.get("", ())), case)


class PromptLookup:
    """What the same verb did in the prompt's own examples: in the one whose objects are most like these."""

    def __init__(self, examples: int) -> None:
        self.examples = examples

    def __call__(self, case: RuleCase) -> Edits:
        best, likeness = None, -1
        for one in case.examples[: self.examples]:
            seen = RuleCase("", case.game, one.things, one.clock, one.action, case.outcome)
            if one.action.split()[0] == case.action.split()[0]:
                pairs = zip(seen.chosen, case.chosen, strict=True)
                same = sum(
                    old == new
                    for there, here in pairs
                    for old, new in zip(one.things[there], case.things[here], strict=True)
                )
                if same > likeness:
                    best, likeness = pattern(seen, one.after), same
        return transplant(best or (), case)
