"""The review page: a local server on which suspicious labels are decided with the keyboard."""
