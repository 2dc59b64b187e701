"""What the store and its back office share: one database."""
