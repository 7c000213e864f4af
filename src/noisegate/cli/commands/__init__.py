"""One thin file per command: its options, and a call of the code that does the work, imported when needed."""
