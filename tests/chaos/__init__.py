"""What a run must survive: `python -m tests.chaos` (`make chaos`) breaks runs by the hundred and counts."""
