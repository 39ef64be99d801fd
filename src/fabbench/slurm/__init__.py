"""What fabbench knows of Slurm: batch scripts, and what its commands print of jobs and nodes. Pure."""
