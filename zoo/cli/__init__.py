"""The console command ``zoo``: a module per sub-command, listed in :data:`zoo.cli.main.COMMANDS`."""

from zoo.cli.main import main

__all__ = ["main"]
