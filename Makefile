# Each target installs what it needs (setup/prepare), and does nothing there on later runs.
# SYSTEM=no installs no system packages; PYTHON=… selects the Python to use.

.DEFAULT_GOAL := help
PREPARE = setup/prepare
FABBENCH = .venv/bin/fabbench
PYTEST = .venv/bin/python -m pytest
# Compile tests once, not in each process.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo demo-local test nightly test-slow test-hosts test-cluster test-nodes test-sky test-rdma test-wheel test-lowest test-fresh lint size docs site man reference bench mutants score sbom lock clean

help:
	@echo 'make demo   compare published EFA and TCP numbers, find a lost EFA and a slow node, all from example logs'
	@echo 'make demo-local  measure shared memory against TCP on this machine'
	@echo 'make test   run the tests'
	@echo 'make test-local  run tests that start programs on this machine: mpirun, fi_pingpong, fabbench itself'
	@echo 'make nightly  run every test there is, as .ci/run does before an issue is closed (about an hour)'
	@echo 'make test-hosts  run tests on hosts of their own: ssh, Slurm; needs root; SLOW=yes runs all, as in the next two'
	@echo 'make test-cluster  run tests on a Kubernetes cluster on this machine (compiles it first: minutes)'
	@echo 'make test-nodes  run the tests with many simulated nodes; needs an otherwise idle machine'
	@echo 'make test-sky  run tests with SkyPilot (installs half a gigabyte first)'
	@echo 'make test-rdma  run tests on two virtual machines with RoCE devices (qemu); needs root'
	@echo 'make test-slow  run the slow tests that need none of these: every cut of every log, more examples'
	@echo 'make test-wheel  build what is published into dist, and use the wheel in an empty environment'
	@echo 'make test-lowest  run unit tests, the Kubernetes client, TAB completion and MCP with the lowest versions of all dependencies'
	@echo 'make test-fresh  run make demo and make test in new Debian 12 and Ubuntu 24.04 systems; needs root'
	@echo 'make lint   ruff, import-linter, mypy, hadolint, the measure of make size, and the time of every pattern'
	@echo 'make size   count expressions, lines, functions, and lines that say too much, per package'
	@echo 'make docs   test the documentation, and build the site'
	@echo 'make site   build the documentation as a site: dist/site'
	@echo 'make man    write man pages: dist/man'
	@echo 'make reference  regenerate docs/cli.md and the figure from the program'
	@echo 'make bench  benchmark fabbench itself: start-up, parsers, checks'
	@echo 'make mutants  change what decides about figures, and see whether tests notice (ten minutes; ARGS=gate: one module)'
	@echo 'make score  read all logs in FOLDER=…: a line per log, and totals'
	@echo 'make sbom   write a CycloneDX list of bundled packages: dist/fabbench.cdx.json'
	@echo 'make lock   write uv.lock again after a change of pyproject.toml; ARGS=--upgrade takes the newest versions'
	@echo 'make clean  remove .venv, .lab, .lowest, .cluster, .sky, .rdma and caches; keeps fabbench-runs/'

# A status is part of what a command shows; with any other the demo fails.
demo:
	@$(PREPARE) run
	@echo '--- Published numbers of two p4d.24xlarge, as one table'
	$(FABBENCH) compare examples/logs/published-p4d-efa.txt examples/logs/published-p4d-tcp.txt --label EFA --label TCP
	@echo
	@echo '--- A benchmark that lost EFA and exited with status 0: explain ends with status 4'
	$(FABBENCH) explain examples/logs/x-ofi-efa-missing.txt --fabric efa; [ $$? = 4 ]
	@echo
	@echo '--- Which node is slow, from logs of pairs of nodes: sweep ends with status 1'
	$(FABBENCH) sweep --from examples/pair-logs --metric bandwidth; [ $$? = 1 ]
	@echo
	@echo '--- Next, a log of your own: $(FABBENCH) explain YOUR.log'

demo-local:
	@$(PREPARE) local
	$(FABBENCH) run pingpong --on local --fabric shm --fabric tcp --size 64 --size 64K --repeat 4

test:
	@$(PREPARE) dev
	$(PYTEST) --numprocesses auto --dist worksteal $(ARGS)

nightly:
	.ci/run nightly

# What needs hosts, clusters or SkyPilot.
ELSEWHERE = lab or cluster or kwok or sky or rdma

test-local:
	@$(PREPARE) dev
	$(PYTEST) -m "local and not (slow or $(ELSEWHERE))" --numprocesses auto --dist worksteal $(ARGS)

# The tiers with real parts: some tests of each, or with SLOW=yes all.
SOME = $(if $(SLOW),,and not slow)

test-slow:
	@$(PREPARE) slow
	$(PYTEST) -m "(slow or hypothesis) and not ($(ELSEWHERE))" --hypothesis-profile nightly \
	    --numprocesses 2 --dist loadfile $(ARGS)

test-hosts:
	@$(PREPARE) $(if $(SLOW),slow,dev)
	$(PYTEST) -m "lab $(SOME)" --numprocesses 2 --dist loadfile $(ARGS)

test-cluster:
	@$(PREPARE) dev
	@setup/cluster
	FABBENCH_REQUIRE_CLUSTER=yes $(PYTEST) -m "cluster and not kwok $(SOME)" --numprocesses 2 --dist loadfile $(ARGS)

test-nodes:
	@$(PREPARE) dev
	@setup/cluster kwok
	FABBENCH_REQUIRE_CLUSTER=yes $(PYTEST) -m kwok $(ARGS)

test-sky:
	@$(PREPARE) sky
	FABBENCH_REQUIRE_SKY=yes $(PYTEST) -m "sky $(SOME)" $(ARGS)

test-rdma:
	@$(PREPARE) rdma
	FABBENCH_REQUIRE_RDMA=yes $(PYTEST) -m rdma $(ARGS)

test-wheel:
	@$(PREPARE) run
	@setup/wheel

test-lowest:
	@$(PREPARE) lowest
	.lowest/bin/python -m pytest tests/unit tests/integration/test_kubernetes_api.py \
	    tests/integration/test_completion.py tests/integration/test_mcp.py -m "not (slow or $(ELSEWHERE))" \
	    --numprocesses auto $(ARGS)

test-fresh:
	@setup/fresh debian
	@setup/fresh ubuntu

lint:
	@$(PREPARE) dev
	setup/lock --check
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/python -m mypy
	.venv/bin/hadolint docker/*/Dockerfile
	.venv/bin/python -m tests.performance.size check
	$(PYTEST) -q -m slow tests/architecture/test_patterns.py

size:
	@$(PREPARE) dev
	.venv/bin/python -m tests.performance.size $(ARGS)

docs: site
	$(PYTEST) tests/docs -m "not sky and not cluster" $(ARGS)

site:
	@$(PREPARE) dev
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet

man:
	@$(PREPARE) dev
	.venv/bin/python docs/man_pages.py dist/man

reference:
	@$(PREPARE) dev
	.venv/bin/python docs/generate.py
	.venv/bin/python docs/figure.py

bench:
	@$(PREPARE) dev
	.venv/bin/python -m tests.performance.run $(ARGS)

mutants:
	@$(PREPARE) dev
	.venv/bin/python -m tests.performance.mutants $(ARGS)

score:
	@$(PREPARE) dev
	.venv/bin/python -m tests.performance.score $(FOLDER)

sbom:
	@$(PREPARE) run
	mkdir -p dist
	.venv/bin/uv export --quiet --frozen --format cyclonedx1.5 --output-file dist/fabbench.cdx.json >/dev/null

lock:
	@$(PREPARE) run
	setup/lock $(ARGS)

clean:
	rm -rf .venv .lab .lowest .cluster .sky .rdma .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
