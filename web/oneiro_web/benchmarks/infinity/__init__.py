"""webarena-infinity."""
