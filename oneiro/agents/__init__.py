"""Agents that act in worlds: rollouts, policies, prompts, evaluation."""
