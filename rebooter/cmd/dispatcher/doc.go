// The dispatcher turns a drained node into the Job of its RebootProcedure, and a
// changed boot id into `rebooted`. The intent is written to the node before the
// Job is made, and the Job's name follows from node and grant, so that whatever
// crashes, one grant makes one Job. It evicts nothing and cordons nothing.
package main
