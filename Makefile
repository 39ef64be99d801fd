# Each target sets up what it needs (setup/prepare), and is quick the second time.
# SYSTEM=no installs no system packages; PYTHON=… names the Python to use.

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-cluster test-nodes test-sky lint docs reference bench score clean

help:
	@echo 'make demo   measure two fabrics of this machine, and compare two example logs'
	@echo 'make test   run the tests'
	@echo 'make test-slow  run the tests that take their time: faults of hosts'
	@echo 'make test-cluster  run the tests on two Kubernetes clusters of this machine (first compiles them: minutes)'
	@echo 'make test-nodes  run the tests with many played nodes; wants a machine with nothing else to do'
	@echo 'make test-sky  run the tests with SkyPilot, of which it first installs half a gigabyte'
	@echo 'make lint   ruff and mypy'
	@echo 'make docs   check the documentation against the program'
	@echo 'make reference  write docs/cli.md anew from the program'
	@echo 'make bench  measure fabbench itself: start-up, parsers, checks'
	@echo 'make score LOGS=FOLDER  score the parsers against logs with an INDEX.tsv of facts'
	@echo 'make clean  remove .venv, .lab, .cluster, .sky and what tools cached; keeps fabbench-runs/'

demo:
	@setup/prepare run
	.venv/bin/fabbench run pingpong --on local --fabric shm --fabric tcp
	@echo
	.venv/bin/fabbench compare examples/logs/x-ofi-tcp.txt examples/logs/x-net-socket.txt \
	    --label libfabric-tcp --label sockets

test:
	@setup/prepare dev
	.venv/bin/python -m pytest $(ARGS)

test-slow:
	@setup/prepare dev
	.venv/bin/python -m pytest -m slow $(ARGS)

test-cluster:
	@setup/prepare dev
	@setup/cluster
	FABBENCH_REQUIRE_CLUSTER=yes .venv/bin/python -m pytest -m "cluster and not kwok" \
	    --numprocesses 2 --dist loadfile $(ARGS)

test-nodes:
	@setup/prepare dev
	@setup/cluster kwok
	FABBENCH_REQUIRE_CLUSTER=yes .venv/bin/python -m pytest -m kwok $(ARGS)

test-sky:
	@setup/prepare dev
	@setup/sky
	FABBENCH_REQUIRE_SKY=yes .venv/bin/python -m pytest -m sky $(ARGS)

lint:
	@setup/prepare dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/python -m mypy

docs:
	@setup/prepare dev
	.venv/bin/python -m pytest tests/test_docs.py $(ARGS)

reference:
	@setup/prepare dev
	.venv/bin/python docs/generate.py

bench:
	@setup/prepare dev
	.venv/bin/python tests/bench/run.py $(ARGS)

score:
	@setup/prepare dev
	.venv/bin/python tests/score.py $(LOGS)

clean:
	rm -rf .venv .lab .cluster .sky .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
