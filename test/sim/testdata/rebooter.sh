#!/bin/sh
# Stands in for the rebooter: the boot-id guard, and the signal to init.
while [ $# -gt 0 ]; do
	case $1 in
	--boot-id-file) file=$2; shift ;;
	--init-pid) pid=$2; shift ;;
	esac
	shift
done
echo "grant=$GANGLION_GRANT expected=$GANGLION_BOOT_ID"
[ "$(cat "$file")" = "$GANGLION_BOOT_ID" ] || exit 0
kill -39 "$pid" || exit 1
exec sleep 1000000
