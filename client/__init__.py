"""Client library and command line for the Sidecar daemon and its sessions."""
