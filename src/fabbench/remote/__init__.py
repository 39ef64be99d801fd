"""Programs on machines, this one too: the transport, ssh, the agent on each, sessions."""
