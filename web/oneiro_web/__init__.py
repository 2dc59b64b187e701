"""A web of its own: five sites with a database per episode, browsers that act on them, and tasks with graders."""
