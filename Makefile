# Where Go's own installer puts it, for shells that do not have it on their PATH.
export PATH := $(PATH):/usr/local/go/bin
# As scripts/toolchain.
export GOTOOLCHAIN := $(shell sed -n 's/^toolchain //p' go.mod)
export CGO_ENABLED := 0
COMMIT ?= $(shell git describe --always --dirty --exclude '*' --abbrev=9 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help build run test test-long test-cluster test-short test-packages bench sim sim-plants sim-places mutants packages chaos check lint clean

help: ## lists these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/notyet, and bin/notyet-bench to measure it: static binaries, no C compiler needed
	@scripts/retry go mod download
	go build -ldflags '-s -w -X github.com/notyet/notyet/internal/command.commit=$(COMMIT)' -o bin/ ./cmd/... ./test/bench/notyet-bench

run: build ## the whole pipeline in one process, everything embedded
	exec bin/notyet dev

test: ## installs and starts what the tests need, runs all tests (one package: make test ARGS=./store/...)
	scripts/test $(ARGS)

test-long: ## the tests with the race detector, those that take long, and long runs of the models
	scripts/test --long $(ARGS)

test-cluster: ## the end-to-end tests on three brokers, three ZooKeepers, a database with a replica, and Redis Cluster or sentinels (SERVERS_SENTINEL=1)
	scripts/test-cluster $(ARGS)

test-short: ## the tests that need no server
	env -u NOTYET_KAFKA_BROKERS -u NOTYET_MYSQL_DSN -u NOTYET_REDIS_ADDRS -u NOTYET_ZOOKEEPER_SERVERS go test ./...

test-packages: ## the Helm chart in Kubernetes' own types, the image, the unit; part of check
	@scripts/retry go -C test/packages mod download
	go -C test/packages test ./... $(ARGS)

bench: build ## measures load and lateness on real servers
	@[ -x scripts/bench ] || { echo 'scripts/bench does not exist'; exit 1; }
	scripts/bench $(ARGS)

sim: ## the whole pipeline in virtual time under random faults: SEED=n, SEEDS=n or SIM_FOR=1h (default 10m)
	SIM_FOR='$(or $(SIM_FOR),$(if $(SEED)$(SEEDS),,10m))' SEED='$(SEED)' SEEDS='$(SEEDS)' go test ./test/sim -run TestSeeds -count=1 -v -timeout 25h

sim-plants: ## puts one mistake at a time into the product, and counts the seeds until the simulator notices (SIM_PLANTS=part of a name)
	SIM_PLANTS='$(or $(SIM_PLANTS),1)' SEED='$(SEED)' SEEDS='$(SEEDS)' go test ./test/sim -run TestPlants -count=1 -v -timeout 25h

sim-places: ## how often the simulator passes each place of the crash table (SEEDS=n, default 100)
	SIM_PLACES=1 SEED='$(SEED)' SEEDS='$(SEEDS)' go test -tags faultpoints ./test/sim -run TestPlaces -count=1 -v -timeout 25h

mutants: ## small mistakes in the rules, one at a time: which does no test notice? Fails below 90 % (ARGS=part of a package's name)
	scripts/mutants $(ARGS)

packages: ## dist/: for amd64 and arm64 an archive, deb, rpm and SBOM of notyet, and checksums; then their tests
	scripts/packages
	scripts/need dpkg-deb=dpkg rpm=rpm
	PACKAGES_BUILT=1 go -C test/packages test -count=1 -run '^TestBuilt' .

chaos: build ## fault runs on real servers
	@[ -x scripts/chaos ] || { echo 'scripts/chaos does not exist'; exit 1; }
	scripts/chaos $(ARGS)

check: ## formatting, vet, lint, tidy modules, import arrows, vulnerabilities
	scripts/check

lint: ## what golangci-lint finds (.golangci.yml); the first run downloads and builds it, which takes minutes
	scripts/lint

clean: ## removes bin/ and dist/; servers, their data and downloads stay in the cache
	rm -rf bin dist
