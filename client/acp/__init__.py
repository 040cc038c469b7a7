"""The Agent Client Protocol for editors: one stdio connection, the workers of many sessions."""
