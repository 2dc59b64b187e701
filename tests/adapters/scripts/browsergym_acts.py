"""BrowserGym on a site of ours, in Chromium: a look, a search that is redirected, a right and a wrong answer."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import gymnasium

from oneiro.adapters.browsergym import register_sites
from oneiro_web.env import WebConfig, WebEnv

# BrowserGym starts a second browser for its chat, and nobody can say which: the machine's own stands in for both.
browsers = Path("browsers").absolute()
chrome = browsers / "chromium-1117" / "chrome-linux" / "chrome"
chrome.parent.mkdir(parents=True)
chrome.symlink_to(shutil.which("chromium"))
os.environ["PLAYWRIGHT_BROWSERS_PATH"] = str(browsers)

names = register_sites()
SEED = 3


def episode(name: str, *actions: str, seed: int = SEED) -> dict:
    env = gymnasium.make(name, headless=True, task_kwargs={"split": "eval"})
    observation, _ = env.reset(seed=seed)
    page = env.unwrapped.page
    title, found = page.title(), []
    for action in actions:
        observation, reward, terminated, _, _ = env.step(action)
        found.append(
            {
                "url": page.url,
                "title": page.title(),
                "reward": reward,
                "done": terminated,
                "error": observation["last_action_error"],
            }
        )
    task = env.unwrapped.task
    result = {"goal": observation["goal"], "title": title, "steps": found, "intent": task.task.intent}
    env.close()
    return result


def oracle_answer(site: str, seed: int) -> tuple[int, str]:
    """The first seed whose task is only a question, and its answer, by the oracle of the text browser."""
    while True:
        world = WebEnv(WebConfig(sites=(site,)))
        world.reset(seed=seed, options={"split": "eval"})
        action = ""
        while not world.over and (action := world.oracle()):
            world.step(action)
        if (
            world.score == 1.0
            and action.startswith("stop [")
            and len(action) > 7
            and all(check.kind == "answer" for check in world.task.spec.checks if check.kind != "db_guard")
        ):
            return seed, action[len("stop [") : -1]
        seed += 1


seed, answer = oracle_answer("shopping", 0)
right = episode("browsergym/oneiro.shopping", "noop()", f"send_msg_to_user({answer!r})", seed=seed)
wrong = episode("browsergym/oneiro.shopping", "send_msg_to_user('forty-two of them')", seed=seed)
moved = episode(
    "browsergym/oneiro.reddit",
    "goto('http://reddit.com/search?q=a')",
    "goto('http://reddit.com/submit')",
    "goto('http://example.org/')",
)
# A redirect: where the sandbox sends one on, the browser arrives.
env = gymnasium.make("browsergym/oneiro.reddit", headless=True)
env.reset(seed=SEED)
page = env.unwrapped.page
before = page.inner_text("body")
page.eval_on_selector("form[action$='/logout']", "form => form.submit()")
page.wait_for_url(lambda url: not url.endswith("/logout"))
page.wait_for_load_state()
left = {"before": before, "after": page.inner_text("body"), "url": page.url}
env.close()
print("RESULT", json.dumps({"names": names, "right": right, "wrong": wrong, "moved": moved, "left": left}))
