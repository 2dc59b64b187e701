"""World models for worlds whose rules are new."""
