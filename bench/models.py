"""What contenders are compared on: a plain Hugging Face folder of seeded weights, and prompts of one length."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from oneiro.models import language
from oneiro.models.language import LanguageModel, ModelSettings
from oneiro.models.randomness import seeded
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError, nearest

PREFIX = "shape:"
"""`shape:NAME` is a model of NAME's shape with random weights: no download, and as fast as the real one. All are Llamas
(Qwen's biases count for nothing here): transformers would read the words below with a Qwen's own tokenizer.
"""
SHAPES: dict[str, dict[str, Any]] = {
    "4m": {"model_type": "llama", "vocab_size": 8_192, "hidden_size": 192, "intermediate_size": 768,
           "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 3},
    "14m": {"model_type": "llama", "vocab_size": 32_000, "hidden_size": 256, "intermediate_size": 1024,
            "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2},
    "smollm2-135m": {"model_type": "llama", "vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536,
                     "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3},
    "qwen2.5-0.5b": {"model_type": "llama", "vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4864,
                     "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2},
    "qwen2.5-1.5b": {"model_type": "llama", "vocab_size": 151_936, "hidden_size": 1536, "intermediate_size": 8960,
                     "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2},
}  # fmt: skip
RANDOM = ("tiny", "14m")
"""Models that have random weights anyway: how long a step takes does not depend on their values."""
STORY = (
    "the lake is frozen and the night is cold so we walk over the ice to the goal and back to the fire where we tell "
    "of the wind and the holes in the ice and of those who took the long way home"
)
WORD = re.compile(r" [a-z0-9]+")


def prepare(name: str, folder: Path, seed: int = 0, device: str = "cpu") -> Path:
    """The folder of model `name`; one with random weights is made in `folder`, any other is found where it lies."""
    if name == "tiny":
        return randomise(language.create_tiny(ModelSettings(vocabulary=300), [STORY], seed), seed).save(folder)
    if name in RANDOM or name.startswith(PREFIX):
        return randomise(shaped(name.removeprefix(PREFIX), device), seed).save(folder)
    return Path(language.locate(name))


def shaped(name: str, device: str = "cpu") -> LanguageModel:
    """A model of a known shape, with a tokenizer of one token a word; in bfloat16 for a GPU."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if name not in SHAPES:
        raise OneiroError(f"no shape called '{name}'{nearest(name, SHAPES)}; known: {', '.join(SHAPES)}")
    tokenizer = word_tokenizer(SHAPES[name]["vocab_size"])
    config = AutoConfig.for_model(
        **SHAPES[name],
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    # A large model's first weights are drawn where that is fast.
    with seeded(0, torch.device(device)), torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return language.assemble(name, model, tokenizer)


def word_tokenizer(vocabulary: int) -> Any:
    """One token a word: " w0", " w1", ... after the special tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*language.SPECIAL, *(f" w{i}" for i in range(vocabulary - len(language.SPECIAL)))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=language.SPECIAL[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w+"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def randomise(model: LanguageModel, seed: int) -> LanguageModel:
    """Give every weight a value of its own, so that a contender that computes any part wrongly stands out."""
    device = model.backbone.device
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for parameter in model.model.parameters():
            noise = 0.05 * torch.randn(parameter.shape, generator=generator, device=device)
            parameter.copy_((1.0 if parameter.dim() == 1 and bool((parameter == 1).all()) else 0.0) + noise)
    return model


def make_prompts(folder: Path, count: int, length: int, seed: int = 0) -> list[str]:
    """`count` texts that the folder's tokenizer turns into exactly `length` tokens each."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = tokenizer.batch_decode([[i] for i in range(min(len(tokenizer), 32_000))])
    words = [text for text in texts if WORD.fullmatch(text)]
    words = [text for text, ids in zip(words, tokenizer(words)["input_ids"], strict=True) if len(ids) == 1]
    random = seeds.generator(seed, "prompts")
    found = ["".join(words[i] for i in random.integers(len(words), size=length)) for _ in range(count)] if words else []
    if not found or any(len(ids) != length for ids in tokenizer(found)["input_ids"]):
        raise OneiroError(f"the tokenizer of {folder} has no words that are one token each; measure with another model")
    return found
