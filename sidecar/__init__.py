"""The supervisor: control plane, records, adoption, reading of rings. Never runs agent code."""
