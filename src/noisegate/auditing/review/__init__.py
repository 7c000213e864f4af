"""The review page: a local server on which people decide about suspicious labels with the keyboard."""
