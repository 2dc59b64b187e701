"""What a run leaves behind: its folder, the records in it, the trackers beside it."""
