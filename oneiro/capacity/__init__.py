"""Before anything is rented: what a recipe needs (`plan.py`) and what many GPUs would make of it (`simulate.py`)."""
