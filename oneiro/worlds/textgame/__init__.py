"""Text games whose whole state is JSON: our own, deterministic and solvable, and recorded ByteSized32 transitions."""
