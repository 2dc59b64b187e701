"""World models as tasks with a verifiable answer, and trained ones in the place of a world."""
