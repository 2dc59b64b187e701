"""A data set that we wrote, opened by LeRobot; and one that LeRobot wrote, read by us."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # both data sets are here
if torch.version.cuda is None:
    # The operators of torchvision's wheel need CUDA. LeRobot uses none of them, but importing it asks for these two.
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")

from lerobot.datasets.lerobot_dataset import LeRobotDataset

from oneiro.adapters.lerobot import ACTION, IMAGE, read_lerobot

ours = Path(sys.argv[1])
opened = LeRobotDataset("oneiro/drawer", root=ours)
written = list(read_lerobot(ours))
frames = [opened[number] for number in range(len(opened))]
images = np.concatenate([one.image for one in written])
actions = np.concatenate([one.action for one in written])
result = {
    "episodes": opened.num_episodes,
    "frames": opened.num_frames,
    "tasks": [frame["task"] for frame in frames],
    "pixels": max(
        float(np.abs(np.moveaxis(frame[IMAGE].numpy(), 0, -1) * 255 - image).max())
        for frame, image in zip(frames, images, strict=True)
    ),
    "actions": bool(np.array_equal(np.stack([frame[ACTION].numpy() for frame in frames]), actions)),
    "stats": sorted(opened.meta.stats),
}

features = {
    IMAGE: {"dtype": "image", "shape": (16, 20, 3), "names": ["height", "width", "channels"]},
    ACTION: {"dtype": "float32", "shape": (4,), "names": None},
}
theirs = LeRobotDataset.create("oneiro/back", fps=5, features=features, root="theirs", use_videos=False)
for one in written:
    for image, action in zip(one.image, one.action, strict=True):
        theirs.add_frame({IMAGE: image, ACTION: action, "task": one.info["instruction"]})
    theirs.save_episode()
theirs.finalize()
result["back"] = [
    bool(np.array_equal(one.image, again.image) and np.array_equal(one.action, again.action))
    and again.info["instruction"] == one.info["instruction"]
    for one, again in zip(written, read_lerobot("theirs"), strict=True)
]
print("RESULT", json.dumps(result))
