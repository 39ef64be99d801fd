"""How steps run: sessions, client/server pairs, mpirun, local processes; or one bash script."""
