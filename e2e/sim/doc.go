// Package sim simulates whole clusters in one process and in virtual time: nodes of
// the production code, without client listeners, on a network, disks and clocks that
// obey a random schedule of faults.
//
// It has tests only. Every history has a seed, which is printed, and which repeats the
// schedule of faults and the load with -sim.seed. What the Go scheduler decides is not
// repeated, so a rare failure may need several runs of its seed.
package sim
