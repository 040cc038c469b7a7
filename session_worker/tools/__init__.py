"""Tools the agent may call: one `ToolSpec` each, one dispatcher for all."""
