# One line of Go or one script for each target; .ci/run calls the same. FUZZTIME sets the length of each fuzz run.
.PHONY: build test lint fmt fuzz image ci

build:
	go build -trimpath -o bin/fullsend-poll .
test:
	go test -race -shuffle=on ./...
lint:
	.ci/run lint planted workflows
fmt:
	.ci/golangci-lint fmt
fuzz:
	.ci/run fuzz
image:
	docker build -t fullsend-poll .
ci:
	.ci/run
