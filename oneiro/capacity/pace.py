"""How fast one GPU is: computed from plan's rates, or read from what `oneiro bench rates` measured."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from oneiro.capacity.sizes import KERNELS, LAUNCH_S, Rates, Size
from oneiro.errors import OneiroError

TITLE = "Rates of one device, for oneiro simulate"
"""Of the table in the benchmark's JSON."""
LARGEST = 1 << 24
"""Bytes of a file of rates; a benchmark writes a few thousand."""
FIT = 64
"""Rows between which a computed pace is a straight line."""


@dataclass(frozen=True)
class Pace:
    """Seconds of one GPU. A call of the sampler takes `step_s` for each token of its longest reply, `row_s` for every
    token of every reply and `prompt_s` for every token of the prompts.
    """

    step_s: float
    """A decoding step, whatever the number of rows."""
    row_s: float
    """A row's part in a decoding step."""
    prompt_s: float
    """A token of a prompt, read before the first one is sampled."""
    token_s: float
    """A token, forward and backward."""
    update_s: float = 0.0
    """An optimiser step, whatever the number of tokens."""
    reduce_s: float = 0.0
    """Adding up gradients over GPUs, an update; nothing where one GPU learns."""
    transfer_s: float = 0.0
    """Handing new weights to GPUs that only sample."""
    pass_s: float = 0.0
    """A forward pass of learning takes no less, however few its tokens."""

    @classmethod
    def computed(cls, size: Size, rates: Rates, length: float) -> Pace:
        """From plan's rates: the line through one row and `FIT` rows of `length` tokens."""
        one, many = rates.decoding(size, 1, length), rates.decoding(size, FIT, length)
        row = (many - one) / (FIT - 1)
        return cls(
            step_s=one - row,
            row_s=row,
            prompt_s=rates.scoring(size, 1),
            token_s=3 * rates.scoring(size, 1),
            reduce_s=rates.reducing(size),
            transfer_s=rates.handing_over(size),
            pass_s=size.layers * KERNELS * LAUNCH_S,
        )

    @classmethod
    def read(cls, path: str | Path, otherwise: Pace) -> Pace:
        """From the JSON of `oneiro bench rates`; what was not measured stays as it is in `otherwise`."""
        try:
            if Path(path).stat().st_size > LARGEST:
                raise OneiroError(f"{path} is too large for a file of rates; give what oneiro bench rates --json wrote")
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            tables = [table for table in data["tables"] if table["title"] == TITLE]
            found = {row["rate"]: row["seconds"] for row in tables[0]["rows"]}
        except OSError as error:
            raise OneiroError(f"cannot read the rates in {path}: {error.strerror}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise OneiroError(f"{path} holds no rates; write some with oneiro bench rates --json {path}") from error
        for name, value in found.items():
            if name not in {field.name for field in fields(cls)} or not _is_seconds(value):
                raise OneiroError(f"{path}: '{name}' is no rate in seconds; measure again with oneiro bench rates")
        learned = {"pass_s": 0.0} if "update_s" in found else {}  # what was measured has waited for its kernels
        return replace(otherwise, **learned | found)

    def rows(self) -> list[tuple[str, float]]:
        """For the benchmark's table."""
        return list(asdict(self).items())


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
