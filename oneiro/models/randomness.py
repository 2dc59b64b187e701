"""torch's global generators, borrowed and given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int = 0, device: torch.device | None = None) -> Iterator[None]:
    """What draws from the global generators inside draws from this seed; afterwards they are as they were.

    torch's layers, transformers and peft draw first weights and dropout from them and take no other. The CPU's
    generator is borrowed, and the device's where it has one of its own.
    """
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        # `torch.manual_seed` would also move the generators of devices that are not given back.
        torch.default_generator.manual_seed(seed % (1 << 63))
        for borrowed in devices:
            with torch.cuda.device(borrowed):
                torch.cuda.manual_seed(seed % (1 << 63))
        yield
