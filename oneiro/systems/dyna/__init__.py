"""Dyna (Sutton 1991): an agent learns by RL in a learned world and in the true one, and the model from true steps."""
