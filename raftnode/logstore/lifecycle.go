package logstore

import (
	"errors"
	"fmt"
)

// Failed is closed when the log has failed. Err then says why.
func (l *Log) Failed() <-chan struct{} { return l.failed }

// Err returns the failure of the log, wrapping ErrFailed and the cause; nil if
// there was none, also after Close.
func (l *Log) Err() error {
	if err := l.usable(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// usable returns the error that a call has to return now.
func (l *Log) usable() error {
	if s := l.down.Load(); s != nil {
		return s.err
	}
	return nil
}

// fail stops the log for good after a failed step on the medium.
func (l *Log) fail(err error) {
	if l.stop(fmt.Errorf("%w: %w", ErrFailed, err)) {
		l.logger.Error("log failed, it takes no more calls", "dir", l.cfg.Dir, "err", err)
		close(l.failed)
	}
}

// Close completes the queued writes, stops the goroutines and releases the
// directory. It returns the failure of the log, if there was one. Later calls wait
// for the first and return the same.
func (l *Log) Close() error {
	return l.shut(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closing = true
		l.work.Broadcast()
		l.space.Broadcast()
	})
}

// Abandon is Close without completing the queued writes, which fail with
// ErrClosed: the nearest thing to a killed process. A write or sync that is
// running is waited for.
func (l *Log) Abandon() error {
	return l.shut(func() { l.stop(ErrClosed) })
}

func (l *Log) shut(begin func()) error {
	var err error
	l.shutOnce.Do(func() {
		begin()
		close(l.quit)
		l.wg.Wait()
		l.stop(ErrClosed)
		err = l.release()
	})
	return errors.Join(l.Err(), err)
}

// release closes the files and gives the directory back.
func (l *Log) release() error {
	var errs []error
	l.metrics.close()
	for _, s := range l.segments {
		errs = append(errs, s.file.Close())
	}
	if l.spare != nil {
		errs = append(errs, l.spare.file.Close())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	return errors.Join(errs...)
}
