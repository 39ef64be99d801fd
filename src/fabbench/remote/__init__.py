"""Programs on other hosts: an agent there, ssh connections as OpenSSH would make them, sessions."""
