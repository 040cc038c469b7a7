"""The session's endpoint: translators of one event log and one session core."""
