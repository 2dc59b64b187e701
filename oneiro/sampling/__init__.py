"""The built-in engine, and a client for servers."""
