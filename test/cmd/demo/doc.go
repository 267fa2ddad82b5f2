// Command demo shows the main job: it starts a real control plane with simulated
// nodes on this machine, says on the nodes' disks that they need a reboot, and
// shows how Ganglion rolls that out. It leaves nothing running.
package main
