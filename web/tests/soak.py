"""`python -m web.tests.soak [--browser chromium] [--episodes 64] [--minutes 30]`: many web episodes at once, for long.

A random policy plays task after task in every slot, all slots in one browser. The exit code is 1 where an episode was
lost, a process became a zombie, or memory grew by a tenth from the middle third of the time to the last.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time

from oneiro_web.browsing import browser
from oneiro_web.env import WebConfig, WebEnv
from oneiro_web.seeds import generator
from web.tests.proc import below, memory

EVERY = 30.0
"""Seconds between two looks at the processes."""
GROWTH = 1.1


class Slot(threading.Thread):
    """Plays one episode after the other until it is told to stop."""

    def __init__(self, number: int, name: str, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.number, self.name_of_browser, self.over = number, name, over
        self.ended = self.steps = 0
        self.lost: list[str] = []

    def run(self) -> None:
        world = WebEnv(WebConfig(browser=self.name_of_browser, max_actions=15))
        for episode in range(1_000_000):
            if self.over.is_set():
                break
            rng = generator("soak", self.number, episode)
            try:
                world.reset(seed=int(rng.integers(1 << 30)))
                done = False
                while not done and not self.over.is_set():
                    _, _, terminated, truncated, _ = world.step(world.random_action(rng))
                    done = terminated or truncated
                    self.steps += 1
                self.ended += done
            except Exception as error:
                self.lost.append(f"{type(error).__name__}: {error}")
        world.close()


def grown(sizes: list[float]) -> bool:
    """Whether the memory of the last third is above that of the middle one. In the first, heaps fill to the size at
    which their owners collect garbage.
    """
    third = len(sizes) // 3
    return statistics.median(sizes[-third or 0 :]) > GROWTH * statistics.median(sizes[third:-third] or sizes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--browser", default="chromium", choices=("chromium", "text"))
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=30.0)
    asked = parser.parse_args()
    over = threading.Event()
    slots = [Slot(number, asked.browser, over) for number in range(asked.episodes)]
    for slot in slots:
        slot.start()
    began, sizes = time.monotonic(), []
    dead: set[int] = set()
    zombies: set[int] = set()
    while time.monotonic() - began < 60 * asked.minutes:
        time.sleep(min(EVERY, 60 * asked.minutes / 4))
        family = below(os.getpid())
        sizes.append(sum(memory(one) for one in family) / 1e6)
        # One that has just ended waits for its parent; one that is seen twice waits in vain.
        zombies |= dead & (dead := {one.id for one in family if one.state == "Z"})
        print(
            f"{(time.monotonic() - began) / 60:5.1f} min  {sum(slot.ended for slot in slots):6d} episodes"
            f"  {sum(slot.steps for slot in slots):7d} steps  {sum(len(slot.lost) for slot in slots):3d} lost"
            f"  {len(family):3d} processes  {len(zombies)} zombies  {sizes[-1]:7.0f} MB"
            f"  restarts {browser(asked.browser).counts.get('restart', 0)}",
            flush=True,
        )
    over.set()
    for slot in slots:
        slot.join(120)
    lost = [line for slot in slots for line in slot.lost]
    leaks = grown(sizes)
    browser(asked.browser).close()
    time.sleep(5)
    left = [one for one in below(os.getpid()) if one.name.startswith(asked.browser) and one.state != "Z"]
    for line in lost[:10]:
        print(line)
    print(
        f"lost {len(lost)}, zombies {len(zombies)}, memory {'grown' if leaks else 'flat'}, processes left {len(left)}"
    )
    return int(bool(lost or zombies or leaks or left))


if __name__ == "__main__":
    sys.exit(main())
