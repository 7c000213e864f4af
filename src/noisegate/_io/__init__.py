"""Files, locks and processes: what noisegate asks of the operating system."""
