package ws

// turn is the place of one frame of writes in the order of its connection.
type turn struct {
	// previous is closed when all earlier frames have been answered.
	previous <-chan struct{}
	// after is closed when this frame's operations may be proposed; nil for at once.
	after <-chan struct{}
	// done is closed by the frame's task when it has been answered.
	done chan struct{}
}

// turns hands out the turns of one connection. For its reader only.
type turns struct {
	last    chan struct{} // done of the newest turn, nil before the first
	barrier chan struct{} // done of the newest exclusive turn, nil before the first
}

// next is the turn of the next frame. Operations that the server stamps take the
// order in which they are proposed, so a frame that holds one is exclusive: it is
// proposed after all earlier frames and before all later ones.
func (t *turns) next(exclusive bool) turn {
	this := turn{previous: t.last, after: t.barrier, done: make(chan struct{})}
	if exclusive {
		this.after = t.last
		t.barrier = this.done
	}
	t.last = this.done
	return this
}

// await returns when done is closed, or at once if it is nil.
func await(done <-chan struct{}) {
	if done != nil {
		<-done
	}
}
