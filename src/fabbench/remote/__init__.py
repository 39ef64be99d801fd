"""Connections to other machines over ssh, as OpenSSH itself would make them."""
