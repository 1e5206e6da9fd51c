// Package protocol is the wire vocabulary of Quorate: every message, code and
// framing rule that a client can see, and the shared algorithms that a client
// computes too (key hash, partition, timestamp order).
//
// Frames are MsgPack maps with a string field "type". Decode guards a frame
// structurally before any value is allocated, then decodes the message that
// "type" names; Append encodes one. The package holds no state; all functions
// are safe for concurrent use. It imports nothing of the server.
package protocol
