"""What everything stands on: errors, seeds, files, processes, threads, progress, plugins."""
