"""Text games: a language model predicts the next state."""
