"""Oneiro trains world models with verifiable rewards, and the agents that use them."""

from __future__ import annotations

__version__ = "0.1.0"
