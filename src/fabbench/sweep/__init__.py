"""Which node, NIC or link is bad? Tests of few nodes → suspects.

Pure: plans tests, and reads their results.

A planner chooses, round by round, which tests to run next; tests of one round share no node, so
that they run concurrently. `fabbench.runs` runs them and stores the results;
`fabbench.sweep.analyze` names the suspects.
"""
