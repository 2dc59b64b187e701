"""Web pages as a prediction task: given a page and an action, which items are new, deleted and updated?

task = WebPagePredictor(WebPagePredictorConfig(brief=True, lines=24))
messages = task.prompt(transition)
task.reward(model_text, transition).value
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.base import Malformed, Messages, Predictor, Reward
from oneiro.tasks.webpage.lookup import PageLookup
from oneiro.tasks.webpage.parse import MAX_CHARACTERS, PagePrediction, parse
from oneiro.tasks.webpage.prompt import (
    Deletions,
    Head,
    Numbers,
    action_text,
    answer,
    brief_text,
    instructions,
    outcome_lines,
    situation_text,
)
from oneiro.tasks.webpage.score import PageScore, content_score, judge, official_score
from oneiro.tasks.webpage.slot_model import SlotModel
from oneiro.tasks.webpage.state import PageSituation, PageTransition, change_to, shown_items, true_diff
from oneiro_web.diff import Diff

Scorer = Literal["strict", "official"]
HEADS_SHARE = 0.2
"""Of the reward, where heads are asked for."""
SHOWN_LINES = 24
"""Lines that are shown of each retrieved change."""


class WebPagePredictorConfig(Settings):
    """What is asked, how it is shown and how it is rewarded."""

    lines: int = Field(0, ge=0)
    """Lines of a page that are shown: its own part from the beginning, or around the element of the action. 0: all."""
    brief: bool = False
    """Leave out instructions, objective and history: for small models that are fine-tuned on the task."""
    deletions: Deletions = "lines"
    """How deleted items are written: as whole lines, as published, or as ids alone."""
    numbers: Literal["page", "window"] = "page"
    """How prompts and answers name lines: by the page's own ids, or counted from what is shown, which a small model
    learns sooner. Scores are the same: an answer is translated back first."""
    heads: tuple[Head, ...] = ()
    """What is predicted besides the change: the next address, whether the episode ends, its reward."""
    retrieve: int = Field(0, ge=0)
    """Similar training steps that the prompt shows with what they changed."""
    reasoning: bool = False
    """Whether the model is to think in words first."""
    scorer: Scorer = "strict"
    """Whose F1 an evaluation reports and RL is paid with `reward: f1`: over records, or the published one over lines of
    the text. Training curves stay strict."""
    reward: Literal["f1", "content"] = "f1"
    """What RL is paid for: the scorer's F1, in which deletions count as much as what comes, or `content`, which pays
    nothing for deleting everything that is shown."""

    @model_validator(mode="after")
    def _numbers_of_brief_prompts(self) -> WebPagePredictorConfig:
        if self.numbers == "window" and not self.brief:
            raise OneiroError(
                "task.numbers=window needs task.brief=true: instructions and histories name a page's own ids"
            )
        return self


class WebPagePredictor(Predictor[PageTransition, Messages, str, PagePrediction]):
    """The prediction task over steps of any web world in the accessibility view."""

    name: ClassVar[str] = "web-page"

    def __init__(
        self, config: WebPagePredictorConfig | None = None, *, examples: Sequence[PageTransition] = ()
    ) -> None:
        """`examples` are the training steps that retrieval looks among."""
        self.config = config if config is not None else WebPagePredictorConfig()
        self.examples = examples

    def prompt(self, case: PageSituation) -> Messages:
        """One user message; what all situations share comes first."""
        config = self.config
        if config.brief:
            text = f"{self._retrieve(case)}{self._count_ids(brief_text(case, config.lines), case)}"
        else:
            opening = instructions(config.reasoning, config.heads)
            text = f"{opening}\n\n{self._retrieve(case)}{situation_text(case, config.lines)}"
        return [{"role": "user", "content": text}]

    def target(self, case: PageTransition) -> str:
        return self.write(self.truth(case), case, outcome_lines(case, self.config.heads))

    def truth(self, case: PageTransition) -> Diff:
        """What the action changed of what is shown."""
        return true_diff(case, self.config.lines)

    def write(self, change: Diff, case: PageSituation, outcome: Sequence[str] = ()) -> str:
        """A change of a case's page as a model is to answer it."""
        return self._count_ids(answer(change, self.config.deletions, outcome), case)

    def _count_ids(self, text: str, case: PageSituation) -> str:
        return Numbers.of(case, self.config.lines).from_here(text) if self.config.numbers == "window" else text

    def absolute(self, text: str, case: PageSituation) -> str:
        """An answer with the page's own ids. A text that is too long to be an answer stays as it is."""
        if self.config.numbers == "page" or len(text) > MAX_CHARACTERS:
            return text
        return Numbers.of(case, self.config.lines).read(text)

    def parse(self, text: str, case: PageSituation) -> PagePrediction | Malformed:
        return parse(self.absolute(text, case), {item.id: item for item in shown_items(case, self.config.lines)})

    def judge(self, text: str, case: PageTransition) -> PageScore:
        """The strict comparison of an answer with the truth."""
        return judge(self.parse(text, case), self.truth(case))

    def official(self, text: str, case: PageTransition) -> PageScore:
        """The published figures; the truth is written as answers are."""
        return official_score(self.absolute(text, case), answer(self.truth(case), self.config.deletions))

    def score(self, text: str, case: PageTransition) -> PageScore:
        return self.official(text, case) if self.config.scorer == "official" else self.judge(text, case)

    def content(self, text: str, case: PageTransition) -> float:
        """The score of what comes, which pays nothing for deleting everything."""
        return content_score(self.parse(text, case), self.truth(case), len(shown_items(case, self.config.lines)))

    def changes(self, case: PageTransition) -> bool:
        """Whether the action changes anything of what is shown."""
        return bool(self.truth(case))

    def heads_right(self, text: str, case: PageTransition) -> dict[str, float]:
        """Which of the heads an answer gets right."""
        read = self.parse(text, case)
        claimed = {} if isinstance(read, Malformed) else read.outcome
        true = dict(line.split(": ", 1) for line in outcome_lines(case, self.config.heads))
        return {head: float(claimed.get(head) == value) for head, value in true.items()}

    def reward(self, text: str, case: PageTransition) -> Reward:
        name = self.config.reward
        change = self.content(text, case) if name == "content" else self.score(text, case).f1
        if not self.config.heads:
            return Reward(change, {name: change})
        right = self.heads_right(text, case)
        heads = HEADS_SHARE * sum(right.values()) / len(right)
        return Reward((1 - HEADS_SHARE) * change + heads, {name: (1 - HEADS_SHARE) * change, "heads": heads})

    def metrics(self, text: str, case: PageTransition) -> dict[str, float]:
        """Precision, recall and F1 under the configured scorer, F1 without ids, the content score, and whether the
        answer could be read."""
        strict, score = self.judge(text, case), self.score(text, case)
        return {
            **score.figures(),
            "id_free_f1": strict.id_free_f1,
            "content": self.content(text, case),
            "parsed": float(strict.flaw is None),
            **{f"{head}_right": right for head, right in self.heads_right(text, case).items()},
        }

    def baselines(self, train: Sequence[PageTransition] = ()) -> dict[str, Callable[[PageTransition], str]]:
        """Nothing changes, everything goes, the page is loaded again, the nearest training step, the slot model, the
        truth.
        """
        rows: dict[str, Callable[[PageTransition], str]] = {
            "no change": self.no_change,
            "delete all": self.delete_all,
            "copy": self.copy,
        }
        if len(train):
            lookup, slots = PageLookup(train, self.config.lines), SlotModel.fit(train)
            rows["lookup"] = lambda case: self.write(lookup(case), case)
            rows["slot model"] = lambda case: self.write(change_to(case, slots.page(case), self.config.lines), case)
        return {**rows, "perfect": self.target}

    def no_change(self, case: PageSituation) -> str:
        return self.write(Diff(), case)

    def delete_all(self, case: PageSituation) -> str:
        """Everything that is shown goes, and nothing comes: what an answer earns that knows nothing of the page."""
        return self.write(Diff(deleted=shown_items(case, self.config.lines)), case)

    def copy(self, case: PageSituation) -> str:
        """The page copied: every line goes, and comes again."""
        items = shown_items(case, self.config.lines)
        return self.write(Diff(new=items, deleted=items), case)

    @cached_property
    def _lookup(self) -> PageLookup:
        return PageLookup(self.examples, self.config.lines)

    def _retrieve(self, case: PageSituation) -> str:
        if not self.config.retrieve:
            return ""
        # Apart also in training, where the nearest step would be the case itself.
        near = self._lookup.nearest(case, self.config.retrieve, apart=True)
        texts = []
        for other in near:
            lines = self.write(self.truth(other), other).split("\n")
            cut = [*lines[:SHOWN_LINES], "..."] if len(lines) > SHOWN_LINES else lines
            did = other.described if self.config.numbers == "page" else self._count_ids(action_text(other), other)
            texts.append(f"A similar step: {did}\n" + "\n".join(cut))
        return "\n\n".join(texts) + "\n\n" if texts else ""
