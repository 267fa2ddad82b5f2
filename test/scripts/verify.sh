#!/bin/sh
# verify.sh BIN MODULE...: what `make verify` checks. Each failure says how to mend it.
set -u
bin=$1
shift
failed=0
fail() {
	echo "verify: $*" >&2
	failed=1
}

unformatted=$(gofmt -l "$@")
[ -z "$unformatted" ] || fail "not formatted; run make fix:
$unformatted"

go vet work || fail "go vet complains"
for module in "$@"; do
	(cd "$module" && "$bin/staticcheck" ./...) || fail "staticcheck complains about $module"
done

for module in "$@"; do
	(cd "$module" && GOWORK=off go build -o /dev/null ./... 2>&1) || fail "module $module does not build alone; run make fix"
	(cd "$module" && GOWORK=off go mod tidy -diff) || fail "go.mod of $module is not tidy; run make fix"
done

# One version of Go and of every dependency in the whole workspace.
several=$(for module in "$@"; do cat "$module/go.mod"; done |
	awk '$1 == "go" { print "go", $2 }
	     $1 ~ /\./ && $2 ~ /^v[0-9]/ { print $1, $2 }
	     $1 == "require" && $3 ~ /^v[0-9]/ { print $2, $3 }' |
	sort -u | awk '{ n[$1]++; v[$1] = v[$1] " " $2 } END { for (m in n) if (n[m] > 1) print m v[m] }')
[ -z "$several" ] || fail "several versions of one dependency; go get one of them in each module:
$several"

# What is generated is what the types say.
before=$(cat shared/api/v1alpha1/zz_generated.deepcopy.go deploy/base/crds/*.yaml | cksum)
make --no-print-directory generate || fail "make generate fails"
after=$(cat shared/api/v1alpha1/zz_generated.deepcopy.go deploy/base/crds/*.yaml | cksum)
[ "$before" = "$after" ] || fail "generated files were out of date; commit what make generate made"

[ "$failed" = 0 ] && echo "verify: all is well"
exit "$failed"
