"""What planning and dreaming start from: a world model and a policy, learned from play, as stages of a run."""
