"""The forum's pages."""
