"""Outcome models: what they see, how often they are right, and when they are refused."""

from __future__ import annotations

import numpy as np
import pytest

from oneiro.episode import Episode, Row
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.logistic import fit_logistic
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
    asks,
    balance,
    confusion,
    evidence,
    features,
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


def test_what_an_intent_names_is_required_and_an_answer_is_read_in_both_forms() -> None:
    quoted = evidence(made(intent='Add "Big Mug" of Oakton to order 000123 of ann/lamp.'))
    assert quoted.required == ["big mug", "000123", "ann/lamp"]  # a quote says it all: names beside it are not required
    named = evidence(made(intent="Tell me the hours of Salty Swan Hotel, Oakton."))
    assert named.required == ["salty swan hotel", "oakton"] and named.page == PAGE.lower()
    other = made()
    other.info["turns"][-1]["reply"] = "<answer>exit(message='It is 5')</answer>"
    seen = evidence(other)
    assert (seen.stopped, seen.answer, len(seen.actions)) == (True, "It is 5", 3)
    assert [asks(intent) for intent in ("Is it?", "Tell me", "Find the shop", "Find shops", "Star it.")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_features_of_a_trajectory_by_hand() -> None:
    def plain(episode: Episode) -> list[float]:
        found = features(episode)
        assert len(found) == 10 + 256 and set(found[10:].tolist()) <= {0.0, 1.0}
        return found[:10].tolist()

    assert plain(made()) == [1, 1, 1, 1, 1, 1, 1, 1, 0, 0.3]
    # An answer that stands nowhere, and a name of two that was never seen.
    wrong = made("999", intent="What is the phone of Salty Swan Hotel and of Oakton?")
    assert plain(wrong) == [1, 1, 1, 0, 0, 0.5, 0, 1, 0, 0.3]
    stuck = made("")
    stuck.info["turns"][1] = {**stuck.info["turns"][0], "actions": [{"valid": False}]}
    assert plain(stuck) == [1, 1, 0, 0, 1, 1, 1, 0, 1, 0.3]
    assert plain(made(intent="Say hello"))[5:7] == [1, 1]  # nothing is required
    words = {"what", "is", "the", "phone", "number", "of", "salty", "swan", "hotel"}
    assert 1 < features(made())[10:].sum() <= len(words)
    assert not np.array_equal(features(made())[10:], features(made(intent="What is it?"))[10:])


def test_logistic_regression_is_at_its_minimum_and_classes_weigh_alike() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([np.ones((60, 1)), rng.normal(size=(60, 2))], axis=1)
    y = (X[:, 1] + rng.normal(size=60) > 0.8).astype(float)
    weight = np.where(y > 0, 2.0, 0.5)
    w = fit_logistic(X, y, weight, decay=0.7)
    p = 1 / (1 + np.exp(-X @ w))
    slope = X.T @ (weight * (p - y)) + np.array([1e-6, 0.7, 0.7]) * w
    assert np.abs(slope).max() < 1e-6
    # Three failures for each success: without weights the constant would say one in four.
    same = [made(number=n, success=n % 4 == 0) for n in range(8)]
    assert Features(same).scores(same[:2]) == pytest.approx([0.5, 0.5], abs=1e-4)
    assert Features(same).scores([]) == []


def test_a_judge_reads_as_much_of_the_page_as_there_is_room_for(tiny: LanguageModel) -> None:
    chat = ChatFormat(tiny.tokenizer)
    long = made(page="hello world " * 40)
    whole = JudgePrompt(chat, 10_000).tokens(long)
    bare = JudgePrompt(chat, 0).tokens(long)
    assert len(bare) + len(chat.encode("hello world " * 40)) == len(whole)
    cut = JudgePrompt(chat, len(bare) + 7).tokens(long)
    # The text without a page may take a token more or less than with one.
    assert abs(len(cut) - (len(bare) + 7)) <= 1 and cut[-5:].tolist() == whole[-5:].tolist()
    text = tiny.decode(whole)
    assert "Answer YES or NO" in text and INTENT in text and "click [58]" in text
    for verdict, word in ((True, "YES"), (False, "NO")):
        row = JudgePrompt(chat, 50).row(long, verdict, 0.5)
        assert tiny.decode(row.tokens[row.weights("ce") == 0.5]) == word


def test_data_of_outcome_models_by_hand() -> None:
    short = made()
    del short.info["turns"][:2]
    assert len(perturb(short, 0)) == 2  # stopping early is what it did
    request = made("", intent="Star it.")
    assert [len(turns_of(bad)) for bad in perturb(request, 0)] == [1]
    early, other, empty = perturb(made(), 0)
    assert [len(turns_of(bad)) for bad in (early, other, empty)] == [1, 3, 3] and turns_of(other)[:2] == turns_of(
        made()
    )[:2]
    assert evidence(other).answer in ("Salty Swan Hotel", "Mo-Su") and evidence(early).answer == ""
    assert evidence(perturb(made(page="'(555) 250-4552'"), 0)[1]).answer == "nothing"
    uneven = [made(number=n, success=n < 3) for n in range(10)]
    even = balance(uneven, 0)
    assert len(even) == 6 and sum(t.success for t in even) == 3 and len({task_of(t) for t in even}) == 6
    assert [task_of(t) for t in balance(uneven, 1)] != [task_of(t) for t in even]
    assert label(0.5, OutcomeSettings(threshold=0.5, abstain=None)) == 1
    found = confusion([1, 1, 1, 0, 0, None], [True, True, False, True, False, True])
    assert [found[name] for name in ("true_positives", "false_positives", "true_negatives", "false_negatives")] == [
        2, 1, 1, 1,
    ]  # fmt: skip
    assert (found["accuracy"], found["precision"], found["recall"]) == (0.6, pytest.approx(2 / 3), pytest.approx(2 / 3))
