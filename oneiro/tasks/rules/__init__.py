"""New rules as a prediction task: the rules are in the prompt, or to be inferred from a few steps in it."""
