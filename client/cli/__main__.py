"""`python -m client.cli` is `sidecarctl`."""

import sys

from client.cli.main import main

sys.exit(main())
