"""What is learned: language models, value heads."""
