"""SPA (arXiv 2510.15047): self-play, SFT on true states, then RL. `pipeline.py` reads top to bottom."""
