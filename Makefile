# `make test` is the test command of the README and needs Go only.
# P is how many packages build and run at a time. The suites start clusters, so more than one
# makes them wait for each other: 2 is faster on an idle machine of 2 cores.
P ?= 1
FUZZTIME ?= 10s
VULN = golang.org/x/vuln/cmd/govulncheck@v1.9.0
LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

export CGO_ENABLED = 0

.PHONY: build test race check sbom reproducible vuln deploy-check image-check fuzz sim controls jepsen chaos-controls e2e damage powerloss bench bench-sync bench-lock bench-query bench-store bench-allocs generate

build:
	go build -trimpath -o quorate ./cmd/quorate

# Not from the cache: the end-to-end suite builds the server, which the cache does not see.
test:
	go test -count=1 -p $(P) -timeout 10m ./...

# The race detector needs a C compiler.
race:
	CGO_ENABLED=1 go test -race -p 1 -timeout 30m ./...

check:
	@test -z "$$(gofmt -l .)" || { echo "not gofmt-ed:"; gofmt -l .; exit 1; }
	go mod verify
	go vet ./...
	go test -run 'Folder|Banned|Package|Exported|StateMachines|Files' .
	go run $(LINT) run

# The bill of materials (CycloneDX, JSON) of the server that is built here. It is not
# committed: it follows from the server, and belongs beside the one that is given out.
sbom: build
	cd tools && go run ./sbom ../quorate > ../quorate.cdx.json

# Two builds of the last commit that share nothing but the modules must be equal.
reproducible:
	.ci/reproducible

# Known vulnerabilities in what the server calls. Asks the Go vulnerability database, or the
# copy of it that GOVULNDB names, and fails without an answer.
vuln:
	go run $(VULN) $${GOVULNDB:+-db $$GOVULNDB} ./...

# The files for containers, systemd, Kubernetes, Prometheus and Grafana, read by the code of
# those programs. Wants no daemon.
deploy-check:
	cd tools && go vet ./... && go test ./... && go run ./deploycheck ..
	go test -count=1 -run 'Manifests|Kubernetes|Composition|Scraping|Image|Systemd|Board' .

# The Dockerfile, built and run without a daemon. Wants root, buildah and busybox-static.
image-check:
	deploy/imagecheck.sh

# Every fuzz target for FUZZTIME, starting from its seeds. Making an input smaller, which by
# default may take a minute each, takes little of it.
fuzz:
	@set -e; for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 2s $$pkg; \
		done; \
	done

# Whole clusters, replica groups and memberships in virtual time, under random faults.
sim:
	go test -timeout 60m -v ./e2e/sim -sim.runs 100
	go test -timeout 60m -v -run Random ./raftnode -chaos 100
	go test -timeout 60m -v ./raftnode/membership -rounds 20

# Each planted bug must be caught by the checks that the healthy code passes, and the
# controls of the fault suites must work.
controls:
	go test -tags bug_ackbeforecommit -run Planted ./raftnode
	go test -tags bug_skipfsync -run TestSkippedSyncIsCaught ./raftnode/logstore
	go test -tags bug_forgetwaiter -run Planted ./fsm/lock
	go test -tags bug_maporder -run Planted ./fsm/lock
	go test -tags bug_reusetoken -run Planted ./fsm
	go test -tags bug_ignorededup -run Planted ./fsm
	go test -tags bug_expirebyfollower -run Planted ./partitions/locks
	go test -tags bug_losesubscriber -run Planted ./partitions/topics
	go test -tags bug_unconfirmedread -run Planted ./partitions
	go test -tags stress -run Stress .

# A cluster of processes under faults for MINUTES, from SEED (0 takes one from the clock).
MINUTES ?= 10
SEED ?= 0
jepsen:
	go build -tags stress -o quorate-stress ./cmd/quorate
	./quorate-stress chaos -minutes $(MINUTES) -seed $(SEED)

# Each planted bug that clients can see must be found within RUNS short rounds.
RUNS ?= 100
chaos-controls:
	e2e/chaos/controls.sh $(RUNS)

# Damaged copies of a node's files, each read by a process of its own.
damage:
	go test -timeout 60m -v -run DamagedFiles . -damage.runs 1000

# Real processes on disks that lose what was not synced. Wants FUSE and the right to mount.
powerloss:
	go test -timeout 60m -v -run 'PowerLoss|BrokenDisk|HangingDisk' ./e2e -e2e.full -e2e.powercuts 100

# The full set wants Node.js and npm, for the script in e2e/js.
e2e:
	cd e2e/js && npm install
	go test -timeout 30m -v ./e2e -e2e.full

bench: build
	./quorate bench -mode all

# Syncs of maps of 10^3 to 10^6 records.
bench-sync: build
	./quorate bench sync | tee bench/sync.txt

# Locks: one client, and eleven that fight for one.
bench-lock: build
	./quorate bench lock | tee bench/lock.txt

# Live queries: a change beside many of them, and one that many follow.
bench-query: build
	./quorate bench query | tee bench/query.txt

# One node whose data is larger than its memory may be.
bench-store: build
	./quorate bench store -records 1000000 -runs 1 -duration 10s -warmup 2s | tee bench/store.txt

# Allocations of one batch of ten writes: frame to acknowledgement without the cluster,
# router to verdicts in a lone node; and of one put in the state machine.
bench-allocs:
	@go test -run '^$$' -bench '^Benchmark(BatchOf10|WritePath|Apply)$$' -benchtime 20000x -benchmem \
		./transport/ws . ./fsm | grep -v '^ok\|^PASS' | tee bench/allocs.txt

# Committed output must equal what the generators write.
generate:
	go generate ./...
	git diff --exit-code
