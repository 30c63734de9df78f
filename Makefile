# Everything that is done with this project. `make help` lists it.

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
FUZZTIME    ?= 30s

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.PHONY: run
run: build ## run everything in one process; data under ./data
	@$(MAKE) --no-print-directory postgres || echo "numera sells without it meanwhile"
	./bin/numera dev

.PHONY: postgres
postgres: ## install Debian's PostgreSQL where it is missing and this user may
	@for programs in /usr/lib/postgresql/*/bin "$$(pg_config --bindir 2>/dev/null)" \
	    "$$(dirname "$$(command -v postgres)")"; do \
	  [ -x "$$programs/postgres" ] && [ -x "$$programs/initdb" ] && exit 0; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql; \
	else \
	  echo "PostgreSQL is missing: on Debian, sudo apt-get install postgresql"; exit 1; \
	fi

.PHONY: build
build: ## build ./bin/numera
	$(GO) build -o bin/numera ./cmd/numera

.PHONY: test
test: postgres lint unit race ## what CI runs: vet, lint, unit and integration tests, race detector

.PHONY: lint
lint: ## go vet, staticcheck, gofumpt
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	@unformatted=$$($(GO) run $(GOFUMPT) -l .); \
	if [ -n "$$unformatted" ]; then echo "make fmt would change:"; echo "$$unformatted"; exit 1; fi

.PHONY: fmt
fmt: ## format
	$(GO) run $(GOFUMPT) -w .

.PHONY: unit
unit: ## unit and integration tests
	$(GO) test -timeout 20m ./...

.PHONY: race
race: ## the same under the race detector
	$(GO) test -race -timeout 25m ./...

.PHONY: crash
crash: ## kill -9 under load, 50 times, and check what was promised
	NUMERA_CRASH_CYCLES=50 $(GO) test -count=1 -timeout 30m -run Crash -v ./shard ./cmd/numera

.PHONY: fuzz
fuzz: ## every fuzzer for FUZZTIME (30s)
	@for package in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    echo "$$package $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
	  done; done

.PHONY: bench
bench: build ## load the system, check every sale, report; see `./bin/numera bench --help`
	./bin/numera bench all
