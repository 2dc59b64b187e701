"""What can be said before and beside training: the machine, ranks, models, memory and time."""
