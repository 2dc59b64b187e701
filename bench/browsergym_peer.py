"""BrowserGym on MiniWoB++ pages, in a process and an environment of its own: steps a second, as one JSON line.

python -P browsergym_peer.py SECONDS TASK,TASK,... [CHROMIUM]

Needs browsergym-miniwob there. Every task is reset once and then clicked at random; resets are timed apart.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

STEPS = 5
"""Clicks after each reset."""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def launch_with(executable: str) -> None:
    """Let every browser start from `executable`: BrowserGym itself offers no way to say so."""
    from playwright.sync_api import BrowserType

    plain = BrowserType.launch

    def launch(self: Any, **options: Any) -> Any:
        return plain(self, **{**options, "executable_path": executable, "args": [*options.get("args", []), *FLAGS]})

    setattr(BrowserType, "launch", launch)  # noqa: B010 - a method cannot be assigned to, for a type checker


def measure(seconds: float, tasks: list[str], delay: float) -> dict[str, float]:
    """Random clicks over the tasks until the time is up."""
    import browsergym.miniwob  # noqa: F401 - registers the tasks
    import gymnasium

    chance, steps, spent, resets, resetting = random.Random(0), 0, 0.0, 0, 0.0
    while spent < seconds:
        task = tasks[resets % len(tasks)]
        options: dict[str, Any] = {"headless": True, "slow_mo": 0, "pre_observation_delay": delay}
        env = gymnasium.make(f"browsergym/miniwob.{task}", disable_env_checker=True, **options)
        began = time.perf_counter()
        observation, _ = env.reset(seed=resets)
        resetting, resets = resetting + time.perf_counter() - began, resets + 1
        began = time.perf_counter()
        for _ in range(STEPS):
            found = [key for key, value in observation["extra_element_properties"].items() if value.get("clickable")]
            chosen = chance.choice(found or list(observation["extra_element_properties"]) or ["0"])
            observation, _, terminated, truncated, _ = env.step(f"click('{chosen}')")
            steps += 1
            if terminated or truncated:
                break
        spent += time.perf_counter() - began
        env.close()
    return {"steps_per_second": steps / spent, "reset_seconds": resetting / resets, "steps": steps}


def main() -> None:
    seconds, tasks = float(sys.argv[1]), sys.argv[2].split(",")
    import miniwob

    os.environ["MINIWOB_URL"] = f"file://{Path(miniwob.__file__).parent}/html/miniwob/"
    if len(sys.argv) > 3:
        launch_with(sys.argv[3])
    found = {name: measure(seconds, tasks, delay) for name, delay in (("default delay", 0.5), ("no delay", 0.0))}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
