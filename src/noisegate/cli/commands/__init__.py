"""One thin file a command: its options, and where the work is done, which is imported when needed."""
