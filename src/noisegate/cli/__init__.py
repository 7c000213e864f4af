"""The command line. Nothing heavy is imported before a command needs it, so `noisegate --help` is quick."""

from noisegate.cli.app import app, main

__all__ = ["app", "main"]
