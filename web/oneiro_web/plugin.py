"""The environments as worlds of Oneiro, which finds them by the entry points of this distribution.

Only here is `oneiro` needed. A world is the environment with Oneiro's vocabulary around it: variants by name, who its
oracle is, and the defaults of `World` for what a web world leaves open.
"""

from __future__ import annotations

from typing import ClassVar

from oneiro.worlds.base import World
from oneiro_web.benchmarks.infinity.env import InfinityEnv
from oneiro_web.benchmarks.miniwob.env import MiniWobEnv
from oneiro_web.env import WebEnv
from oneiro_web.sites import SITES

# Settings and spaces of both sides are alike, and not of one class: that is what the checker of types is not told.


class WebWorld(WebEnv, World):  # type: ignore[misc]
    """One task on our own sites."""

    about: ClassVar = (
        "The web: tasks on five sites of our own, in a text browser or Chromium; graded by what they left."
    )

    variants: ClassVar = {
        "html": {"view": "html"},
        "chromium": {"browser": "chromium"},
        "unseen": {"test": "unseen"},
        **{site: {"sites": (site,)} for site in SITES},
    }
    oracle_is: ClassVar = "the script of the task's template"


class MiniWobWorld(MiniWobEnv, World):  # type: ignore[misc]
    """One page of MiniWoB++."""

    about: ClassVar = "MiniWoB++: one small page, one instruction; its own script pays."


class InfinityWorld(InfinityEnv, World):  # type: ignore[misc]
    """One task of webarena-infinity."""

    about: ClassVar = "webarena-infinity: one task on a generated site; its own verifier decides."

    variants: ClassVar = {level: {"difficulty": (level,)} for level in ("easy", "medium", "hard")}
