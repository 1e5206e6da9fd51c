// Package fault puts a TCP proxy on the links between processes on one machine, so
// that a test can cut, slow or reset each direction of each link while the
// processes know nothing of it.
//
// Every process listens on one address and advertises another, its front. A Network
// listens on all fronts. It learns who dialed from the operating system, by the
// process that owns the other end of the connection; that works for encrypted
// connections too. Bytes from i to j pass the link i->j whichever of the two dialed.
//
// A cut keeps connections open and holds their bytes back, and those of connections
// made meanwhile, as a network does that loses packets; what was held back moves on
// after healing.
//
// It runs on Linux only. It does not lose or change bytes, and it cannot tell apart
// two dialers in one process.
package fault
