#!/bin/sh
# Stands in for the detector: says how it was called, and lasts.
echo "node=$GANGLION_NODE $*"
exec sleep 1000000
