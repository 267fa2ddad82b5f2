// Package protocol is the contract between the daemons as code: the keys that
// they keep on a Node, the values of those keys, the grants in them, and the
// phase of a node that follows. It knows no client and no clock, and imports
// nothing but the standard library.
//
// Parsing is strict and never panics: what is not exactly a value of the
// protocol is an error that names the key and what is wrong with it, and a node
// that carries such a value is in the phase Unreadable, in which nobody acts.
package protocol
