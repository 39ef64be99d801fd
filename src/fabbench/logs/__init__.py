"""Text to records: launchers' prefixes, fabbench's markers, NCCL's debug text."""
