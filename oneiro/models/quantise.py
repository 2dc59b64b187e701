"""Weights in 4 or 8 bits, through bitsandbytes: an extra, asked for only where it is used."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from oneiro.models.settings import Quantise
from oneiro.runtime.errors import OneiroError


def bitsandbytes(what: str) -> Any:
    """The package, or one line that says how to get it."""
    try:
        return importlib.import_module("bitsandbytes")
    except ImportError as error:
        raise OneiroError(f"{what} needs the package bitsandbytes; run: pip install 'oneiro[quantise]'") from error


def loading(kind: Quantise, dtype: torch.dtype) -> Any:
    """What transformers is told: 4-bit NormalFloat with quantised scales (QLoRA, arXiv 2305.14314), or 8 bits."""
    from transformers import BitsAndBytesConfig

    bitsandbytes(f"model.quantise={kind}")
    if kind == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
