"""The use case: open, plan, execute, store, close; run directories and log files."""
