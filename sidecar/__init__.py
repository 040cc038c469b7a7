"""The supervisor: control plane, records, adoption, reading of rings. Never runs agent code."""

import sys

if sys.platform == "win32":  # here, because the first import that fails would say it worse
    raise SystemExit("Sidecar needs Unix sockets and signals: it runs on Linux and macOS.")
