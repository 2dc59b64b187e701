"""TRL plays a world by tool calls: a tiny model that has learned one call, through `environment_factory`."""

from __future__ import annotations

import json
from pathlib import Path

import trl
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from oneiro.adapters.trl import environment_factory
from oneiro.episode import Row, given
from oneiro.learning import sft
from oneiro.learning.settings import LearnerSettings, OptimiserSettings, SftSettings
from oneiro.models.language import ModelSettings, create_tiny

factory = environment_factory("bandit", low=0.25, chance=1.0)
env = factory()
first = env.reset(seed=0)
arms = env._world.arms
template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text()
call = '<tool_call>\n{"name": "act", "arguments": {"action": "NAME"}}\n</tool_call>'
language = create_tiny(ModelSettings(layers=2, width=64, heads=2, mlp=128, vocabulary=900), [first, call] * 3, 0)
tokenizer = language.tokenizer
tokenizer.chat_template = template
prompt = tokenizer.apply_chat_template(
    [{"role": "user", "content": first}], tools=[env.act], add_generation_prompt=True, return_dict=False
)
rows = [
    Row(
        [
            given(prompt),
            given(tokenizer.encode(text, add_special_tokens=False), "assistant", ce=1.0),
            given([tokenizer.eos_token_id], "assistant", ce=1.0),
        ]
    )
    for text in (call.replace("NAME", name) for name in arms.names)
]
settings = SftSettings(batch=2, epochs=150, learner=LearnerSettings(optimiser=OptimiserSettings(lr=3e-3)))
sft.train(language, rows, [], settings, Path("sft"), 0, lambda *_: None)
language.save("model")

trainer = GRPOTrainer(
    "model",
    args=GRPOConfig(
        "out",
        max_steps=2,
        per_device_train_batch_size=16,
        num_generations=8,
        max_completion_length=64,
        learning_rate=1e-4,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    ),
    train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": ""}], "seed": 0}] * 2),
    environment_factory=factory,
)
trainer.train()
logs = [entry for entry in trainer.state.log_history if "reward" in entry]
keys = ("reward", "tools/call_frequency", "tools/failure_frequency")
print("RESULT", json.dumps({key: [entry[key] for entry in logs] for key in keys}))
