# Every target works on a fresh machine with Go, make and git, and builds what it
# needs. `make help` lists them.

SHELL := /bin/sh
.DEFAULT_GOAL := help

MODULES := detector drainer locker rebooter shared test
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ganglion
BIN := $(CACHE)/bin
DEV := test/tools/dev
export VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
export KO_CONFIG_PATH := ko.yaml

# The race detector needs a C compiler. Where there is none, tests run without it,
# and say so.
CC_THERE := $(shell command -v gcc || command -v clang || command -v cc)
RACE := $(if $(CC_THERE),-race)

##@ See it work

.PHONY: demo
demo: ## Roll out a reboot over simulated nodes of a real control plane. ARGS="-nodes 30 -concurrency 3 -keep"
	@go run ./test/cmd/demo $(ARGS)

.PHONY: test
test: ## Run all tests, those of the whole system on a real control plane too.
	@$(if $(RACE),,echo "no C compiler: running without the race detector";) \
	go test $(RACE) $(TESTFLAGS) ./detector/... ./drainer/... ./locker/... ./rebooter/... ./shared/... && \
	go test $(RACE) $(TESTFLAGS) -timeout 40m -p 1 ./test/...

.PHONY: prove
prove: ## Explore millions of states of the protocol, for minutes, and tell of every broken promise.
	@go test ./test/explore -prove -v -timeout 2h $(TESTFLAGS)

.PHONY: bench
bench: ## Measure, on a real control plane and for minutes. ARGS="-only detector"
	@go test -run '^$$' -bench . -benchmem ./shared/...
	@go run ./test/bench $(ARGS)

##@ Use it

.PHONY: images
images: $(BIN)/ko ## Build all images with ko and push them to KO_DOCKER_REPO.
	@$(BIN)/ko build ./detector ./locker ./drainer ./rebooter/cmd/dispatcher ./rebooter/cmd/rebooter

.PHONY: manifests
manifests: $(BIN)/ko ## Print what to apply, with images built by ko. OVERLAY=default
	@kubectl kustomize deploy/overlays/$(or $(OVERLAY),default) | $(BIN)/ko resolve -f -

##@ Change it

.PHONY: verify
verify: $(BIN)/staticcheck $(if $(GOVULNDB),vuln) ## Check format, vet, lint, generated files, versions, and that each module builds alone.
	@test/scripts/verify.sh $(BIN) $(MODULES)

.PHONY: vuln
vuln: $(BIN)/govulncheck ## Look for known vulnerabilities in what the binaries call. GOVULNDB names the database
	@for m in $(MODULES); do (cd $$m && GOWORK=off $(BIN)/govulncheck $(if $(GOVULNDB),-db=$(GOVULNDB)) ./...) || exit 1; done

.PHONY: fix
fix: generate ## Do what verify asks for, as far as a program can.
	@gofmt -w $(MODULES)
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy) || exit 1; done
	@go work sync

.PHONY: generate
generate: $(BIN)/controller-gen $(BIN)/trimcrd ## Make the CRDs and deep copies from the API types.
	@cd shared && GOWORK=off $(BIN)/controller-gen object paths=./api/... \
		crd:generateEmbeddedObjectMeta=true output:crd:dir=../deploy/base/crds
	@$(BIN)/trimcrd deploy/base/crds/ganglion.dev_rebootprocedures.yaml jobTemplate

$(BIN)/ko: $(DEV)/go.mod
	@mkdir -p $(BIN) && cd $(DEV) && GOWORK=off go build -o $@ github.com/google/ko
$(BIN)/govulncheck: $(DEV)/go.mod
	@mkdir -p $(BIN) && cd $(DEV) && GOWORK=off go build -o $@ golang.org/x/vuln/cmd/govulncheck
$(BIN)/staticcheck: $(DEV)/go.mod
	@mkdir -p $(BIN) && cd $(DEV) && GOWORK=off go build -o $@ honnef.co/go/tools/cmd/staticcheck
$(BIN)/controller-gen: $(DEV)/go.mod
	@mkdir -p $(BIN) && cd $(DEV) && GOWORK=off go build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen
$(BIN)/trimcrd: $(DEV)/go.mod $(DEV)/trimcrd/main.go
	@mkdir -p $(BIN) && cd $(DEV) && GOWORK=off go build -o $@ ./trimcrd

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
