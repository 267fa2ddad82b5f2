// The rebooter is what a reboot Job runs on its node: it reboots the host once,
// if the host is still in the boot that the Job was made for, and then waits to
// be ended by the shutdown that it began. It does not speak to the API server.
package main
