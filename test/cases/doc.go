// Package cases has the cases of the field as tests of the whole system, each named
// by its sentence: real control plane, real daemons with the rights that deploy/
// gives them, simulated nodes. Each test ends with the promises of the protocol
// checked on all that happened in it.
package cases
