package protocol

// Limits of what a peer may send. They bound the memory that one frame can cost.
const (
	// MaxFrame is the size of the largest frame, in bytes.
	MaxFrame = 2 << 20
	// MaxAnswer is the size of the largest frame that a client takes from its server,
	// in bytes.
	MaxAnswer = 64 << 20
	// MaxDepth is the deepest nesting of arrays and maps in a frame, the frame's
	// own map included.
	MaxDepth = 256
	// MaxElements is the number of array elements, map keys and map values in a
	// frame. A decoded element costs at most some 50 bytes, so a frame of one-byte
	// elements stays below 64 MB.
	MaxElements = 1 << 20
	// MaxBatchItems is the number of inner messages of a BATCH.
	MaxBatchItems = 8192
	// MaxBatchOps is the number of operations of an OP_BATCH.
	MaxBatchOps = 32768
	// MaxSafeInteger is the largest whole number that every client holds exactly.
	// Integers on the wire stay within 0 and this.
	MaxSafeInteger = 1<<53 - 1
)
