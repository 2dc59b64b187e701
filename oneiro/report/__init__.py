"""What a run found: tables with intervals, curves, and one self-contained page per run."""
