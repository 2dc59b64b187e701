"""Language models: `tiny` from scratch, `smollm2-135m`, any Hugging Face causal LM by name or path; LoRA through peft.

A `LanguageModel` holds the Hugging Face model (for its config, saving and adapters), its tokenizer, and the
`Backbone` that actually computes. Folders are plain Hugging Face folders: `AutoModelForCausalLM.from_pretrained`
reads what `save` writes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from oneiro.episode import Tokens
from oneiro.models import quantise
from oneiro.models.admission import admit, backbone_of
from oneiro.models.attention import Causal
from oneiro.models.backbone import Backbone
from oneiro.models.chat import CHATML, set_template
from oneiro.models.foreign import ForeignBackbone
from oneiro.models.locate import METADATA, locate, newest_weights
from oneiro.models.randomness import seeded
from oneiro.models.settings import LoraSettings, ModelSettings
from oneiro.runtime import distributed, files
from oneiro.runtime.errors import OneiroError, first_line

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ROLES = "<|im_start|>user assistant\n<|im_end|>\n"
"""The chat format's own words, for the texts that a tokenizer is trained on."""


@dataclass
class LanguageModel:
    """A causal language model ready to be sampled from and trained."""

    name: str
    model: Any
    tokenizer: Any
    """None where tokens are no text (video)."""
    backbone: Backbone
    metadata: dict[str, Any] = field(default_factory=dict)
    """How the model was taught to be used (its dialogue, its world); saved beside the weights, so that a folder is
    enough.
    """
    trained_in: Path | None = None
    """The folder of the stage that these weights come from: its optimiser has kept what rounding took from them."""

    @property
    def about(self) -> str:
        """One line for people: size, and whether the fast path is taken."""
        shape = self.backbone.shape
        slow = "; through the layers of transformers, slower" if isinstance(self.backbone, ForeignBackbone) else ""
        return f"model {self.name}: {shape.parameters:,} parameters, vocabulary {shape.vocabulary:,}{slow}"

    @property
    def end_tokens(self) -> list[int]:
        """Ids that end a reply: the tokenizer's end of turn, and whatever the model's generation config adds."""
        ends = {self.tokenizer.eos_token_id} if self.tokenizer is not None else set()
        configured = getattr(self.model.generation_config, "eos_token_id", None)
        ends.update(configured if isinstance(configured, list) else [configured])
        return sorted(end for end in ends if end is not None)

    def encode(self, text: str) -> list[int]:
        """Token ids of literal text, without any added special token."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def text(self, sampled: Tokens) -> str:
        """Sampled tokens as text, without the end token."""
        ended = len(sampled) and int(sampled[-1]) in self.end_tokens
        return self.decode(sampled[:-1] if ended else sampled)

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Named parameters an optimiser may change, in a fixed order."""
        return [(name, p) for name, p in self.backbone.named_parameters() if p.requires_grad]

    def save(self, folder: str | Path, manifest: bool = False) -> Path:
        """Write a Hugging Face folder atomically (adapters: a peft folder), with a manifest if asked for one."""
        return write_folder(folder, self._write, {} if manifest else None)

    def _write(self, folder: Path) -> None:
        # Fused projections are views of one storage, which save_pretrained would take for tied weights: hand it copies.
        state = {name: tensor.detach().clone().contiguous() for name, tensor in self.model.state_dict().items()}
        if self.model.config.tie_word_embeddings:
            state.pop("lm_head.weight", None)
        quiet()
        self.model.save_pretrained(folder, state_dict=state)
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(folder)
        if self.metadata:
            files.write_json(folder / METADATA, self.metadata)


def write_folder(folder: str | Path, write: Any, facts: dict[str, Any] | None = None) -> Path:
    """Fill a folder through `write(path)` so that it is either whole or absent. With `facts` it gets a manifest that
    holds them beside the checksums (`files.write_manifest`). Of several ranks only the main process writes.
    """
    folder = Path(folder)
    if not distributed.is_main_process():
        return folder
    part = folder.with_name(f".{folder.name}.part")
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.replace(folder)  # stopped between the two renames below, the last time
    for leftover in (part, old):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        write(part)
        files.open_to_readers(part)
        if facts is not None:
            files.write_manifest(part, **facts)
        if folder.exists():
            folder.replace(old)
        part.replace(folder)
    except Exception as error:
        if reason := files.unwritten(error):
            raise OneiroError(f"cannot write {folder}: {reason}; free some space or choose another place") from error
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return folder


def quiet() -> None:
    """No progress bars from the library: ours say what is going on."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load(settings: ModelSettings | str, device: torch.device | str | None = None) -> LanguageModel:
    """Load weights from a folder, the hub or the built-in source of `smollm2-135m`; float32 on CPU, bfloat16 on a
    GPU.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    settings = ModelSettings(name=settings) if isinstance(settings, str) else settings
    device = torch.device(device) if device is not None else default_device()
    source = locate(settings.name)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    quiet()
    refuse_damaged(Path(source))
    try:
        # A folder of weights alone holds a model whose tokens are no text.
        wordless = Path(source).is_dir() and not any(file.is_file() for file in Path(source).glob("*token*"))
        tokenizer = None if wordless else AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        how: dict[str, Any] = {"dtype": dtype, "trust_remote_code": False}
        if settings.quantise:
            how |= {"quantization_config": quantise.loading(settings.quantise, dtype), "device_map": {"": device}}
        if (Path(source) / "adapter_config.json").is_file():
            model = load_adapter(Path(source), how)
        else:
            model = AutoModelForCausalLM.from_pretrained(source, **how)
    except OneiroError:
        raise
    except Exception as error:  # every loader raises its own kind; the person needs one line
        reason = first_line(error)
        if "trust_remote_code" in str(error):
            reason = "it needs Python code that comes with it (auto_map), which is never run; take another model"
        raise OneiroError(f"cannot load a language model from '{source}': {reason}") from error
    model = model if settings.quantise else model.to(device)
    if tokenizer is not None:
        set_template(tokenizer, settings.chat_template, settings.name)
    language = with_lora(assemble(settings.name, model, tokenizer), settings.lora)
    if (Path(source) / METADATA).is_file():
        language.metadata = files.read_json(Path(source) / METADATA)
    return language


def refuse_damaged(source: Path) -> None:
    """Weights that a run keeps have a manifest, in their folder or that of the checkpoint; what differs is an error."""
    for folder, below in ((source, ""), (source.parent, f"{source.name}/")):
        file = folder / files.MANIFEST
        if not file.is_file() or b'"files"' not in file.read_bytes():
            continue  # none, or somebody else's
        if problem := files.damage(folder, below):
            raise OneiroError(
                f"the model at {source} is damaged ({problem}); take another copy, or delete {folder} and the run's "
                "run.json, and the same command trains it again"
            )


def with_lora(language: LanguageModel, settings: LoraSettings | None) -> LanguageModel:
    """The same model with a fresh adapter, the only part that then learns; unchanged where none is asked for."""
    if settings is None or hasattr(language.model, "get_base_model"):
        return language
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=list(settings.targets) or "all-linear",
        lora_dropout=settings.dropout,
        use_rslora=settings.rslora,
        use_dora=settings.dora,
        task_type="CAUSAL_LM",
    )
    # peft draws from the global generator: a stage that starts again must draw the same.
    with seeded(0, language.backbone.device):
        try:
            model = get_peft_model(language.model, adapter)
        except ValueError as error:
            raise OneiroError(
                f"no projection of {language.name} is called as model.lora.targets says ({', '.join(settings.targets)})"
            ) from error
    made = LanguageModel(language.name, model.eval(), language.tokenizer, backbone_of(model), language.metadata)
    if settings.targets:
        require_all_learn(made)
    return made


def require_all_learn(language: LanguageModel) -> None:
    """Every adapter takes part in the forward, so that it can learn."""
    probe = torch.arange(3, device=language.backbone.device)
    named = language.trainable()
    hidden = language.backbone(probe[None], probe, Causal())
    used = torch.autograd.grad(hidden.float().sum(), [p for _, p in named], allow_unused=True)
    for (name, _), gradient in zip(named, used, strict=True):
        if gradient is None:
            raise OneiroError(
                f"an adapter on '{name.partition('.lora_')[0]}' would take no part; choose other lora.targets"
            )


def merge_adapters(language: LanguageModel) -> LanguageModel:
    """The same model with its adapter merged into the weights, all of which can then learn."""
    if not hasattr(language.model, "merge_and_unload"):
        return language
    if getattr(language.model.get_base_model(), "is_quantized", False):
        raise OneiroError(f"{language.name} is quantised: its adapter cannot be merged here; set merge_lora=false")
    model = language.model.merge_and_unload()
    model.requires_grad_(True)
    return LanguageModel(language.name, model, language.tokenizer, backbone_of(model), language.metadata)


def load_adapter(folder: Path, how: dict[str, Any]) -> Any:
    """An adapter on its base; `how` is what transformers is told about loading the base."""
    from peft import AutoPeftModelForCausalLM

    with seeded():  # a fresh adapter is drawn before the saved one takes its place
        return AutoPeftModelForCausalLM.from_pretrained(folder, is_trainable=True, **how)


def is_adapter(name: str) -> bool:
    """Whether a name is a folder of adapters, or a run or checkpoint that holds one."""
    path = Path(name).expanduser()
    return path.is_dir() and (newest_weights(path) / "adapter_config.json").is_file()


def assemble(name: str, model: Any, tokenizer: Any) -> LanguageModel:
    model.eval()
    admit(model)
    return LanguageModel(name, model, tokenizer, backbone_of(model))


def create_tiny(
    settings: ModelSettings,
    texts: Iterable[str],
    seed: int,
    tags: Sequence[str] = (),
    spaces: Literal["before", "after"] = "before",
) -> LanguageModel:
    """A Llama-style model with random weights and a tokenizer trained on `texts`; `tags` become single tokens.

    A space belongs to the word `before` which it stands, or `after` which: then a name in brackets begins with the same
    token as in a sentence, which makes copying it easier.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = train_tokenizer(texts, settings.vocabulary, tags, spaces)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        intermediate_size=settings.mlp,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return assemble("tiny", initialise(LlamaForCausalLM, config, seed), tokenizer)


def initialise(architecture: Callable[[Any], Any], config: Any, seed: int) -> Any:
    """A model with random weights of our own, on the default device."""
    with seeded():  # the library's own first weights, of which none stays
        model = architecture(config)
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            elif key.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()  # every block starts as the identity: short runs learn copying sooner
            else:
                std = 0.05 if "embed" in key else model.config.hidden_size**-0.5
                parameter.normal_(0.0, std, generator=generator)
    return model.to(default_device())


WORDS = {"before": r" ?[A-Za-z]+| ?\d| ?[^\sA-Za-z\d]|\s", "after": r"[A-Za-z]+ ?|\d ?|[^\sA-Za-z\d] ?|\s"}
"""What the tokenizer never joins: words, digits and single symbols, each with its space."""


def train_tokenizer(
    texts: Iterable[str], vocabulary: int, tags: Sequence[str] = (), spaces: Literal["before", "after"] = "before"
) -> Any:
    """Byte-level BPE over words, digits and single symbols; whatever is separated by a space stays one token at
    least.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS[spaces]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(tags),
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = CHATML
    return fast


def merge(source: str | Path, target: str | Path) -> Path:
    """Merge an adapter into its base, join the shards of a foreign checkpoint, or copy a checkpoint's weights, as one
    Hugging Face folder.
    """
    from oneiro.models import shards

    source, target = Path(source), Path(target)
    if target.exists() and any(target.iterdir()):
        raise OneiroError(f"{target} exists and is not empty; choose another place")
    if not source.is_dir():
        raise OneiroError(f"no folder at {source}; give a run, a checkpoint or an adapter folder")
    if reason := files.unwritable(target):
        raise OneiroError(f"cannot write {target}: {reason}; choose another place")
    if (folder := shards.find(source)) is not None:
        return shards.merge(folder, target)
    return merge_adapters(load(str(source), "cpu")).save(target)


def read_state(path: Path, what: str) -> dict[str, torch.Tensor]:
    """Tensors of a safetensors file, with an error a person can act on."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise OneiroError(f"{what} at {path} cannot be read ({error}); delete it to start that stage again") from error


def write_state(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    files.write_with(path, lambda part: save_file({k: v.detach().contiguous() for k, v in tensors.items()}, part))
