// Package protocol is the wire vocabulary of Quorate: every message, code and
// framing rule that a client can see, and the shared algorithms that a client
// computes too (key hash, partition, timestamp order).
//
// Frames are MsgPack maps with a string field "type". Decode guards a frame
// structurally before any value is allocated, then decodes the message that
// "type" names; Append encodes one. Record values are neither: they stay MsgPack.
//
// The kind table (kind_table.go) has one row per kind. A message is a struct whose
// tags say how its fields lie in the frame; the frequent ones, and a few whose
// fields do not map one to one, have a codec by hand instead. Both read through
// one lenient reader.
//
// The package holds no state; all functions are safe for concurrent use. It
// imports nothing of the server.
package protocol
