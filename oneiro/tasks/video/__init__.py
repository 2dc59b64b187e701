"""Robot video: a transformer predicts the next frames."""
