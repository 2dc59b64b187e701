"""`python -m web.tests.soak_miniwob [--rounds 100] [--minutes 120]`: MiniWoB++ tasks, over and over.

A round starts every task once, with a new seed, in a session of its own. The exit code is 1 where a task did not start
in every round, fewer than 100 tasks start, or memory grew.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from oneiro_web.benchmarks.miniwob.episode import Episode, task_names
from oneiro_web.browsing import browser
from web.tests.proc import below, memory
from web.tests.soak import grown

THREADS = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=120.0)
    asked = parser.parse_args()
    tasks = task_names()
    started, failed, sizes, began = Counter[str](), Counter[str](), list[float](), time.monotonic()

    def reset(task: str, seed: int) -> None:
        try:
            with Episode(browser("chromium"), task, seed) as episode:
                episode.session.observe().text()
            started[task] += 1
        except Exception as error:
            failed[f"{task}: {error}"] += 1

    done = 0
    with ThreadPoolExecutor(THREADS) as threads:
        while done < asked.rounds and time.monotonic() - began < 60 * asked.minutes:
            list(threads.map(reset, tasks, [done] * len(tasks)))
            done += 1
            family = below(os.getpid())
            sizes.append(sum(memory(one) for one in family) / 1e6)
            print(
                f"round {done:3d}  {(time.monotonic() - began) / 60:5.1f} min  {started.total():6d} resets"
                f"  {failed.total():3d} failed  {len(family):3d} processes  {sizes[-1]:6.0f} MB",
                flush=True,
            )
    whole = sum(started[task] == done for task in tasks)
    for line, times in failed.most_common(10):
        print(f"{times} times {line}")
    leaks = grown(sizes) if len(sizes) > 3 else False
    print(f"{whole} tasks started in each of {done} rounds, memory {'grown' if leaks else 'flat'}")
    browser("chromium").close()
    return int(whole < 100 or bool(failed) or leaks)


if __name__ == "__main__":
    sys.exit(main())
