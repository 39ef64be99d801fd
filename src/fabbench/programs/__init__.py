"""Programs of fabbench's own that run on the hosts: each is one file that needs nothing of fabbench."""
