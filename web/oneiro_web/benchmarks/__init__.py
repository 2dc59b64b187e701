"""Published benchmarks in the same browsers: WebArena's containers, MiniWoB++, webarena-infinity."""
