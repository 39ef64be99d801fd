"""A Slurm from its login node: commands there, jobs that are submitted and followed, and their ends."""
