// Package attack tries, with the real token of each daemon, what its thief would: on a
// real API server with everything of deploy/ applied. What is allowed is a short list;
// the rest is refused, by RBAC or by an admission policy that says why.
package attack
