"""Your own reward: a model with random weights learns to alternate consonants and vowels. Half a minute on one core.

python examples/own_reward.py            # then compare runs/alternate/metrics.jsonl, the column `reward`
python examples/own_reward.py 5          # five steps only

In the place of `model` stands anything that `oneiro.train` takes: "smollm2-135m", a model of the hub, a folder.
"""

from __future__ import annotations

import sys
from itertools import pairwise

import oneiro
from oneiro.models.language import ModelSettings, create_tiny
from oneiro.rundir.records import read_lines

LENGTH = 8


def reward(prompt: str, reply: str) -> float:
    """Half for letters, half for neighbours of which one is a vowel and one is not, among the first characters.

    Without the cut a reply of long tokens would earn more than 1: whatever a reward leaves open, RL finds.
    """
    reply = reply[:LENGTH]
    letters = sum(character in "abcdefghijklmnopqrstuvwxyz" for character in reply)
    changes = sum((a in "aeiou") != (b in "aeiou") and (a + b).isalpha() for a, b in pairwise(reply))
    return 0.5 * letters / LENGTH + 0.5 * changes / (LENGTH - 1)


def main(steps: int = 150, out: str = "runs/alternate") -> None:
    model = create_tiny(ModelSettings(layers=2, width=64, heads=2, mlp=128), ["banana tomato"], seed=0)
    oneiro.train(model, ["Say something."], reward, out=out, steps=steps, group_size=32, max_tokens=LENGTH)
    rewards = [line["reward"] for line in read_lines(f"{out}/metrics.jsonl")]
    few = max(1, steps // 10)
    print(f"mean reward: first steps {sum(rewards[:few]) / few:.2f}, last steps {sum(rewards[-few:]) / few:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
