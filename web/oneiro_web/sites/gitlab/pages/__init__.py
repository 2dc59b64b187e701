"""The code host's pages."""
