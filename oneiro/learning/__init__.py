"""One learner, SFT, the RL loop, and one small file per algorithm."""
