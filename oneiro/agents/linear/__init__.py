"""A web agent without a language model, the baseline of those that have one: it learns in seconds on a CPU.

`policy` chooses among a page's candidate actions by a softmax over hashed `features`; `train` fits it.
"""

from oneiro.agents.linear.policy import Choice, LinearPolicy, choice, is_linear
from oneiro.agents.linear.train import LinearCritic, fit, turn_numbers

__all__ = ["Choice", "LinearCritic", "LinearPolicy", "choice", "fit", "is_linear", "turn_numbers"]
