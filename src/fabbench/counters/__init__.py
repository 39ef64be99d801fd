"""What the NICs of each host moved: counters before, during and after a run, and what they show.

`snapshot` is a script for any host and what its text says; `reading` reads that text; `traffic` is the
difference of two snapshots; `balance` and `findings` judge it; `stored` is how a run directory keeps it.
"""
