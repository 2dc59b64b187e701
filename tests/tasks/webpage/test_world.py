"""A predictor in the place of the web: true predictions lead along the true pages, bad ones change nothing."""

from __future__ import annotations

from collections.abc import Sequence

from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.prompt import answer
from oneiro.tasks.webpage.record import RecordingWeb, recorded_web
from oneiro.tasks.webpage.state import PageSituation
from oneiro.tasks.webpage.world import LearnedPage
from oneiro_web.diff import Diff, Item
from oneiro_web.env import WebConfig

REDDIT = WebConfig(sites=("reddit",), max_actions=8)


def test_true_predictions_show_what_the_true_web_shows() -> None:
    task = WebPagePredictor(WebPagePredictorConfig(heads=("url", "done", "reward")))
    true = recorded_web("web:reddit", {"max_actions": 8})
    assert isinstance(true, RecordingWeb)
    true.reset(seed=5, options={"split": "train"})

    def predict(asked: Sequence[PageSituation]) -> list[str]:
        true.step(asked[0].action)
        return [task.target(true.steps[-1])]

    world = LearnedPage(task, predict, REDDIT)
    first, _ = world.reset(seed=5, options={"split": "train"})
    assert first == true.render()
    while not world.over:
        action = true.oracle()
        assert action is not None
        observation, reward, terminated, _, info = world.step(action)
        assert not info["malformed"]
        depthless = [line.strip() for line in observation.splitlines()]
        assert depthless[-5:] == [line.strip() for line in true.render().splitlines()][-5:]
        assert world.page.url == true.page.url
    assert terminated and reward == true.score == 1.0 and info["success"]
    world.close()
    true.close()


def test_bad_predictions_change_nothing_and_a_planner_can_return() -> None:
    task = WebPagePredictor(WebPagePredictorConfig(lines=14, deletions="ids"))
    answers = ["nonsense", answer(Diff(new=(Item(18, "alert 'it\\'s done'"),))), "New items:\n" * 9]
    world = LearnedPage(task, lambda asked: [answers.pop(0)], REDDIT)
    first, _ = world.reset(seed=5)
    start = world.state
    observation, reward, _, _, info = world.step("click [2]")
    assert observation == first and info["malformed"] and not info["effective"] and reward == 0
    observation, _, _, _, info = world.step("click [2]")
    assert "[18] alert" in observation and info["effective"] and not info["malformed"]
    assert world.page.nodes[18].role == "alert" and world.page.nodes[18].name == "it's done"
    world.show(start)
    assert world.render() == first
    _, reward, terminated, _, info = world.step("stop [42]")
    assert terminated and reward == 0 and info["malformed"] and not info["success"]
    world.close()
