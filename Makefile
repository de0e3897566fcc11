# All commands of the project: make help lists them.
# Stamps in the virtual environment record what is installed, so a second run reinstalls nothing.

VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --require-virtualenv
CONSTRAINTS := tools/constraints.txt
PACKAGING := pyproject.toml setup.py $(CONSTRAINTS)
KERNEL := $(wildcard kafka_async/kernel/*.pyx kafka_async/kernel/*.pxi kafka_async/kernel/*.h)

# Tests and benchmarks start hundreds of processes, and each would compile every module again: 0.3 s of this package alone.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-slow test-environments test-matrix test-spark-matrix conformance conformance-spark contract-mutants fuzz fuzz-long fuzz-kernel instructions lint docs bench bench-defaults bench-pythons bench-quotas bench-spark bench-tls bench-wire reliability-consumer-kills reliability-groups reliability-orchestrator reliability-restarts reliability-spark reliability-transactions clean spark dev kernel kcat kdc kerberos

# A heading of this file, or a target with the text after its ##.
help:
	@awk -F ':.*## ' '/^# --- / { gsub(/^# --- | -+$$/, ""); print } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-25s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- Install --------------------------------------------------------------------------------------

# PYTHON, or the newest version that starts: a name on the PATH may belong to a version manager without that version.
$(BIN)/python:
	@for name in $(PYTHON) python3.14 python3.13 python3.12 python3.11 python3; do \
	  if $$name -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "making $(VENV) with $$name"; exec $$name -m venv $(VENV); \
	  fi; \
	done; \
	echo "kafka_async needs Python 3.11 or newer, with venv; none was found on the PATH" >&2; exit 1

$(VENV)/.installed-base: $(PACKAGING) $(KERNEL) | $(BIN)/python
	@echo "installing kafka_async, its command and its compiled kernel (it takes a minute or more)"
	@$(PIP) install -q -c $(CONSTRAINTS) pip setuptools wheel Cython
	@PYTHONWARNINGS=ignore $(PIP) install -q --no-build-isolation -c $(CONSTRAINTS) -e '.[cli]'
	@KAFKA_ASYNC_KERNEL=c $(BIN)/python -c 'import kafka_async.kernel' 2>/dev/null \
	  && echo "kernel: compiled" \
	  || echo "kernel: plain Python (for the compiled one, install a C compiler; then make clean demo)"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-base tools/requirements-dev.txt
	@echo "installing the development tools (it takes some minutes)"
	@PYTHONWARNINGS=ignore $(PIP) install -q --no-build-isolation -c $(CONSTRAINTS) -e '.[cli,uvloop,testing]' pyarrow \
	  -r tools/requirements-dev.txt
	@touch $@

$(VENV)/.installed-spark: $(PACKAGING) | $(VENV)/.installed-base
	@echo "installing pyspark (a download of about 450 MB, once; it takes some minutes)"
	@$(PIP) install --progress-bar on -c $(CONSTRAINTS) pyspark pyarrow pandas
	@touch $@

dev: $(VENV)/.installed-dev ## everything that development needs, into .venv
spark: $(VENV)/.installed-spark ## pyspark
kernel: $(VENV)/.installed-base ## the package with its compiled kernel

# kcat is a package of Debian and its relatives. It is installed if make runs as root; otherwise a message says how.
kcat: ## kcat, which make test-slow uses
	@command -v kcat >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing kcat"; export DEBIAN_FRONTEND=noninteractive; \
	  apt-get install -y -qq kcat >/dev/null 2>&1 \
	    || { apt-get update -qq && apt-get install -y -qq kcat >/dev/null; } && exit 0; \
	fi; \
	echo "kcat is missing, so its tests will not run: install it (Debian: apt-get install kcat)" >&2

# A key distribution center of MIT Kerberos, and python-gssapi, which is compiled with the Kerberos library.
kdc: $(VENV)/.installed-dev ## Kerberos, which make test-slow uses
	@$(BIN)/python -c 'import gssapi' 2>/dev/null && PATH="$$PATH:/usr/sbin" command -v krb5kdc >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Kerberos"; export DEBIAN_FRONTEND=noninteractive; \
	  packages="krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc"; \
	  apt-get install -y -qq $$packages >/dev/null 2>&1 \
	    || { apt-get update -qq && apt-get install -y -qq $$packages >/dev/null; } \
	    && $(PIP) install -q -c $(CONSTRAINTS) gssapi && exit 0; \
	elif command -v krb5-config >/dev/null && $(PIP) install -q -c $(CONSTRAINTS) gssapi; then exit 0; fi; \
	echo "Kerberos is missing, so its tests will not run: install it (Debian: apt-get install krb5-kdc" \
	  "krb5-admin-server krb5-user libkrb5-dev, then make kdc)" >&2

kerberos: kdc ## tests of GSSAPI with a key distribution center and Apache Kafka
	@$(BIN)/python -m pytest tests/integration/test_kerberos.py

# Spark needs Java 17. Without it its tests are skipped, which the last line reports, and the demo leaves it out.
ifneq ($(filter demo test test-slow test-matrix test-spark-matrix,$(MAKECMDGOALS)),)
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
JAVA_VERSION := $(shell $(JAVA) -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p')
SPARK_IF_JAVA := $(shell [ "0$(JAVA_VERSION)" -ge 17 ] && echo $(VENV)/.installed-spark)
endif

# --- Demo -----------------------------------------------------------------------------------------

ifeq ($(SPARK),no)
demo: $(VENV)/.installed-base
	@$(BIN)/kafka-async demo $(FILES) --no-spark $(DEMO_ARGS)
else
demo: $(VENV)/.installed-base $(SPARK_IF_JAVA) ## a streaming word count, end to end [SPARK=no] [FILES=...]
	@$(BIN)/kafka-async demo $(FILES) $(DEMO_ARGS)
endif

BACKEND ?= embedded

# --- Check a change -------------------------------------------------------------------------------

# pyright reads the types of pyspark too.
lint: $(VENV)/.installed-dev $(VENV)/.installed-spark ## style, imports, spelling, language and types
	@$(BIN)/python tools/run_lint.py

test-fast: $(VENV)/.installed-dev ## a minute of unit tests of producer, group, records and kernel
	@$(BIN)/python tools/run_tests.py fast

test: $(VENV)/.installed-dev $(SPARK_IF_JAVA) ## unit and integration tests [STAGES='unit-c']
	@$(BIN)/python tools/run_tests.py normal $(STAGES)

test-slow: $(VENV)/.installed-dev $(SPARK_IF_JAVA) kcat kdc ## slow tests, and core tests on another Python [STAGES='spark core-3.12']
	@$(BIN)/python tools/run_tests.py slow $(STAGES)

test-matrix: $(VENV)/.installed-dev ## integration tests on older brokers
	@$(BIN)/python tools/run_tests.py matrix

# Spark 4.0, 4.1 and 4.2 are installed beside .venv, which has the newest: tools/sparks.py.
test-spark-matrix: $(VENV)/.installed-dev $(SPARK_IF_JAVA) ## tests with Spark on 4.0, 4.1 and 4.2
	@$(BIN)/python tools/run_tests.py spark-matrix

# The environments are .venv-env-NAME, made at the first call: tools/environments.py.
test-environments: $(VENV)/.installed-dev ## core tests with other versions, event loops, servers and installations
	@$(BIN)/python tools/run_tests.py environments

docs: $(VENV)/.installed-dev ## the documentation site, with links checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site
	@echo "site/index.html"

# --- Compare with Kafka ---------------------------------------------------------------------------

# CONFORMANCE_ARGS='--seed 1 --count 1000 --only FetchResponse:12': python -m tools.conformance --help
conformance: $(VENV)/.installed-dev ## the wire format, with Kafka's own Java classes
	@$(BIN)/python -m tools.conformance $(CONFORMANCE_ARGS)

# SPARK_CONFORMANCE_ARGS='--backend embedded --only batch'.
conformance-spark: $(VENV)/.installed-dev ## rows, batches and offsets, with Spark's own Kafka connector
	@$(BIN)/python -m tools.conformance.spark $(SPARK_CONFORMANCE_ARGS)

# MUTANT_ARGS='--only handlers/offsets'.
contract-mutants: $(VENV)/.installed-dev ## the embedded cluster with changed error codes, with Kafka's responses
	@$(BIN)/python -m tests.contract.mutants $(MUTANT_ARGS)

# --- Search for defects ---------------------------------------------------------------------------

# Every target from captured frames; a seed determines a run: FUZZ_ARGS='--seed 7'. The compiled kernel
# follows if clang is installed.
fuzz: $(VENV)/.installed-dev ## a minute of fuzzing the code that reads from the network
	@$(BIN)/python -m fuzz short $(FUZZ_ARGS)
	@$(BIN)/python -m fuzz.kernel --seconds 15 $(KERNEL_FUZZ_ARGS) || [ $$? -eq 2 ]

# Half an hour, continuing with the corpora of the previous call.
fuzz-long: $(VENV)/.installed-dev ## half an hour of fuzzing; the next call continues
	@$(BIN)/python -m fuzz long --seconds 1500 $(FUZZ_ARGS)
	@$(BIN)/python -m fuzz.kernel --seconds 300 $(KERNEL_FUZZ_ARGS) || [ $$? -eq 2 ]

# KERNEL_FUZZ_ARGS='--seconds 600 --seed 7 --targets batches'.
fuzz-kernel: $(VENV)/.installed-dev ## the compiled kernel under libFuzzer and AddressSanitizer (needs clang)
	@$(BIN)/python -m fuzz.kernel $(KERNEL_FUZZ_ARGS)

# The header shows the seed; an interrupted run continues with RELIABILITY_ARGS=--resume.
reliability-consumer-kills: $(VENV)/.installed-dev ## 1,000 consumers killed while they process a record, which comes again
	@$(BIN)/python -m tests.reliability.consumer_kills $(RELIABILITY_ARGS)

# The header shows the seed: KAFKA_ASYNC_TEST_SEED=7 make reliability-orchestrator BACKEND=apache.
reliability-orchestrator: $(VENV)/.installed-dev ## 200 jobs with the driver killed 10 times, each effect once [BACKEND=embedded]
	@$(BIN)/python -m pytest tests/integration/test_orchestrator_kills.py -s -q --kafka-backend $(BACKEND)

# RELIABILITY_ARGS='--restarts 2 --seed 7 --backend embedded'. A seed determines the order and the pauses.
reliability-restarts: $(VENV)/.installed-dev ## ten rolling restarts of three brokers, which no consumer group may notice
	@$(BIN)/python -m tests.reliability.restarts $(RELIABILITY_ARGS)

# RELIABILITY_ARGS='--seconds 120 --records 200000 --seed 7'. A seed determines the schedule.
reliability-groups: $(VENV)/.installed-dev ## 12 members of a group stopped, started, killed and frozen for 5 minutes
	@$(BIN)/python -m tests.reliability.groups $(RELIABILITY_ARGS)

# RELIABILITY_ARGS='--seconds 120 --seed 7 --backend embedded', or --resume after an interruption. A seed determines the faults and their order.
reliability-spark: $(VENV)/.installed-dev $(VENV)/.installed-spark ## 15 minutes of kills around the exactly-once sink, rows compared
	@$(BIN)/python -m tests.reliability $(RELIABILITY_ARGS)

# RELIABILITY_ARGS='--runs 2 --records 10000 --seed 7', or --resume after an interruption.
reliability-transactions: $(VENV)/.installed-dev ## ten transactional copies while workers and brokers are killed and stopped
	@$(BIN)/python -m tests.reliability.transactions $(RELIABILITY_ARGS)

# --- Measure --------------------------------------------------------------------------------------

# INSTRUCTIONS_ARGS='--only enqueue --top 20', or --write.
instructions: $(VENV)/.installed-dev ## instruction counts of the hot paths, with their budget (needs valgrind)
	@$(BIN)/python -m tools.instructions $(INSTRUCTIONS_ARGS)

# BENCH_ARGS='--resume', '--only produce-100 idle', '--backend embedded', '--help'.
bench: $(VENV)/.installed-dev ## all clients, tuned, on Apache Kafka: half an hour
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-defaults: $(VENV)/.installed-dev ## all clients with default options: 10 minutes
	@$(BIN)/python -m benchmarks --defaults $(BENCH_ARGS)

# It makes .venv-3.12 and .venv-3.13.
bench-pythons: $(VENV)/.installed-dev ## the hot paths on Python 3.11, 3.12 and 3.13
	@$(BIN)/python -m benchmarks --pythons $(BENCH_ARGS)

# SPARK_BENCH_ARGS='--scale 0.1 --rounds 2 --only copy-100'. The connector's jars are downloaded by Maven.
bench-spark: $(VENV)/.installed-dev $(VENV)/.installed-spark ## the Spark data source and Spark's own connector: 20 minutes
	@$(BIN)/python -m benchmarks.spark $(SPARK_BENCH_ARGS)

# QUOTA_ARGS='--chart' draws the chart of docs/quotas.md, without Apache Kafka.
bench-quotas: $(VENV)/.installed-dev ## rates with quotas of 1 MB/s on one broker, and those of Java's clients: 5 minutes
	@$(BIN)/python -m benchmarks.quotas $(QUOTA_ARGS)

bench-tls: $(VENV)/.installed-dev ## all clients over TLS, the part of `make bench` with encryption: 14 minutes
	@$(BIN)/python -m benchmarks --tls $(BENCH_ARGS)

# WIRE_ARGS='--only fetch'.
bench-wire: $(VENV)/.installed-dev ## encoding and decoding of messages and batches
	@$(BIN)/python -m benchmarks.wire $(WIRE_ARGS)

# --- Clean up -------------------------------------------------------------------------------------

clean: ## remove build results, caches and artifacts
	rm -rf build dist site artifacts kafka-async-demo spark-warehouse metastore_db *.egg-info
	rm -rf .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	rm -f kafka_async/kernel/*.c kafka_async/kernel/*.so $(VENV)/.installed-base
	find kafka_async tests tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
