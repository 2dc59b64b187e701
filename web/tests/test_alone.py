"""The package without Oneiro and without torch: a task is played from a process that can import neither."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

sys.modules.update(dict.fromkeys(("oneiro", "torch", "transformers", "playwright")))  # None: cannot be imported
from gymnasium.utils.env_checker import check_env

from oneiro_web.errors import WebError
from oneiro_web.env import WebConfig, WebEnv

env = WebEnv(WebConfig(sites=("map",)))
observation, info = env.reset(seed=0)
while not env.over:
    observation, reward, terminated, truncated, info = env.step(env.oracle())
check_env(env, skip_render_check=True)
try:
    WebEnv(WebConfig(sites=("maps",)))
except WebError as error:
    print(reward, info["success"], error, WebError.__mro__[1] is Exception)
"""


def test_a_task_is_played_where_oneiro_is_not_installed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1.0 True no site is called 'maps'; did you mean 'map'? True\n"
