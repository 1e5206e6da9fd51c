package protocol

// NewMessage gives tests an empty message of each kind.
func NewMessage(k Kind) Message { return kinds[k].alloc() }

// LayoutKey gives tests the key under which a kind keeps its fields.
func LayoutKey(k Kind) string { return kinds[k].layout.key() }
