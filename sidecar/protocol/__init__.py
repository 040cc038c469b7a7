"""The vocabulary that `sidecar`, `session_worker` and `client` share.

Imports the standard library only, so that the command line stays quick to start.
"""

VERSION = "0.1.0"
