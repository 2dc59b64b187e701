"""Outcome models: what they see, how often they are right, and when they are refused."""

from __future__ import annotations

import numpy as np
import pytest

from oneiro.episode import Episode, Row
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.runtime.errors import OneiroError
from oneiro.systems.webrl.agent import auc
from oneiro.systems.webrl.episodes import task_of, turns_of
from oneiro.systems.webrl.outcome import (
    Features,
    JudgePrompt,
    LanguageJudge,
    NoisyOracle,
    Oracle,
    Rules,
    balance,
    confusion,
    evidence,
    label,
    perturb,
    require_precision,
)
from oneiro.systems.webrl.recipe import OutcomeSettings

PAGE = "Task: x\n[1] RootWebArea 'Salty Swan Hotel'\n[2] StaticText '(555) 250-4552'\n[3] StaticText 'Mo-Su'"


INTENT = "What is the phone number of Salty Swan Hotel?"


def made(
    answer: str = "(555) 250-4552", number: int = 0, success: bool = True, page: str = PAGE, intent: str = INTENT
) -> Episode:
    replies = ["type [4] [Salty Swan Hotel] [1]", "click [58]", f"stop [{answer}]"]
    turns = [{"state": page, "reply": f"<answer>{reply}</answer>", "actions": [{"valid": True}]} for reply in replies]
    return Episode([], success=success, info={"task": {"id": f"task {number}", "intent": intent}, "turns": turns})


def test_evidence_is_read_off_replies_and_pages() -> None:
    seen = evidence(made())
    assert seen.stopped and seen.answer == "(555) 250-4552" and "salty swan hotel" in seen.required
    unfinished = made()
    unfinished.info["turns"].pop()
    assert not evidence(unfinished).stopped


def test_rules_want_an_answer_from_the_page_and_nothing_where_nothing_is_asked() -> None:
    request = made("", intent="Star the project Salty Swan Hotel.")
    wrong = made("555")
    wrong.info["turns"][0]["actions"][0]["valid"] = False
    shown = [made(), made("999"), made(""), request, made("(555) 250-4552", page="nothing here"), wrong]
    assert Rules().scores(shown) == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]


def test_perturbed_demonstrations_are_failures_of_three_kinds() -> None:
    bad = perturb(made(), seed=0)
    assert [t.success for t in bad] == [False] * 3
    assert len(turns_of(bad[0])) == 1
    answers = [evidence(t).answer for t in bad[1:]]
    assert answers[1] == "" and answers[0] not in ("", "(555) 250-4552")


def test_features_learn_to_tell_done_from_perturbed_on_other_tasks() -> None:
    good = [made(number=n) for n in range(40)]
    data = balance([*good, *(bad for t in good for bad in perturb(t, 0))], seed=1)
    assert sum(t.success for t in data) * 2 == len(data)
    model = Features([t for t in data if int(task_of(t).split()[1]) < 30])
    held_out = [t for t in data if int(task_of(t).split()[1]) >= 30]
    found = confusion([label(s, OutcomeSettings()) for s in model.scores(held_out)], [t.success for t in held_out])
    assert found["accuracy"] >= 0.8 and found["recall"] == 1.0


def test_a_noisy_oracle_errs_at_its_rates_and_always_alike() -> None:
    shown = [made(number=n, success=n % 2 == 0) for n in range(2000)]
    model = NoisyOracle(0.1, 0.3, seed=4)
    scores = model.scores(shown)
    wrong = [score != t.success for score, t in zip(scores, shown, strict=True)]
    assert np.mean(wrong[::2]) == pytest.approx(0.3, abs=0.04)
    assert np.mean(wrong[1::2]) == pytest.approx(0.1, abs=0.03)
    assert model.scores(shown[5:9]) == scores[5:9]
    assert Oracle().scores(shown[:2]) == [1.0, 0.0]


def test_confusion_threshold_and_abstention_by_hand() -> None:
    settings = OutcomeSettings(abstain=(0.4, 0.6), threshold=0.5)
    labels = [label(score, settings) for score in (0.9, 0.6, 0.5, 0.4, 0.1)]
    assert labels == [1, 1, None, 0, 0]
    found = confusion(labels, [True, False, True, True, False])
    assert [found[name] for name in ("true_positives", "false_positives", "true_negatives", "false_negatives")] == [
        1
    ] * 4
    assert (found["accuracy"], found["precision"], found["recall"], found["abstained"]) == (0.5, 0.5, 0.5, 1)


def test_training_does_not_start_below_the_demanded_precision() -> None:
    settings = OutcomeSettings(name="features", min_precision=0.75)
    require_precision({"precision": 0.75}, settings)
    for precision in (0.74, None):
        with pytest.raises(OneiroError, match="precision of outcome=features"):
            require_precision({"precision": precision}, settings)
    require_precision({"precision": None}, settings.model_copy(update={"min_precision": 0.0}))


def test_a_judge_says_yes_with_the_odds_of_its_model(tiny: LanguageModel) -> None:
    learner = Learner(tiny.backbone, LearnerSettings(), 1)

    def logprobs(rows: list[Row]) -> list[float]:
        examples = [Example.of(row) for row in rows]
        scores, _ = learner.logprobs(examples)
        return [float((e.weights["ce"] * s).sum()) for e, s in zip(examples, scores, strict=True)]

    prompt = JudgePrompt(ChatFormat(tiny.tokenizer), 400)
    (score,) = LanguageJudge(prompt, logprobs).scores([made()])
    yes, no = logprobs([prompt.row(made(), verdict) for verdict in (True, False)])
    assert score == pytest.approx(np.exp(yes) / (np.exp(yes) + np.exp(no)), rel=1e-5)


def test_auc_by_hand() -> None:
    assert auc([0.9, 0.2, 0.5, 0.5], [1, 0, 1, 0]) == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    assert auc([0.5], [1]) is None
