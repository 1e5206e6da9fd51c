package query

// Bounds on what one query may ask for.
const (
	// MaxRows is the number of rows of a result, and of a live window.
	MaxRows = 10_000

	maxBytes    = 1 << 20 // the query object
	maxNodes    = 1024    // conditions of a filter
	maxDepth    = 64      // nesting of conditions
	maxOperands = 16_384  // list elements of all conditions together
	maxPath     = 32      // steps of an attribute path
	maxPattern  = 4096    // bytes of a pattern
	maxPrograms = 16_384  // instructions of all patterns together
	maxWork     = 1 << 17 // microseconds, about, that it takes to compile all patterns
	maxColumns  = 32      // sort fields; grouping columns; aggregations
	maxFields   = 1024    // names of a projection
	// maxSteps is how many steps the filter may take on one record. A step is an entry
	// passed over, a comparison, or patternStep instructions of a pattern on one byte.
	maxSteps    = 1 << 20
	patternStep = 4
	// recompile is what it costs, in steps, to compile a pattern that lies in the record, and
	// workSteps what each microsecond of that costs beside it.
	recompile = 1 << 12
	workSteps = 64
	// stepBytes is how many bytes of text are looked at in a step.
	stepBytes = 16
)
