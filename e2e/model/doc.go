// Package model decides whether what clients were told agrees with what the cluster
// holds.
//
// A History records every send of every write and what came back. Check compares it
// with the records read from each node after the faults are over. Register is a
// porcupine model for writes that the server orders.
//
// An outcome that was never learned stays unknown: such a write may be there or not,
// and is never counted as failed.
package model
