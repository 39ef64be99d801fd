"""What the NICs of each host moved: counters before, during and after a run, and what they show.

`snapshot` has the script for any host, reads what it prints, and subtracts two snapshots;
`findings` judges the difference; `execution_counters` is how marker lines and a run directory keep
them.
"""
