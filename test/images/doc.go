// Package images builds Ganglion's images as users do, with ko and ko.yaml, and pushes
// them to a registry on this machine's loopback.
package images
