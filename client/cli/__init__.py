"""`sidecarctl`, the command line."""

from client.cli.main import main

__all__ = ["main"]
