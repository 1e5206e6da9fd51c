package command

import "fmt"

// newest are the versions of commands that this build writes, and the newest that it reads.
var newest = [...]uint8{
	KindPut: putVersion, KindMemberPut: systemVersion, KindTablePut: systemVersion, KindGenesis: systemVersion,
	KindORAdd: fencedAddVersion, KindORRemove: orVersion, KindCollect: collectVersion, KindRead: TellingReadVersion,
	KindLock: QueuedOnceVersion, KindUnlock: lockVersion, KindExpire: lockVersion, KindRenew: lockVersion, KindCancel: lockVersion,
	KindEndSession: lockVersion, KindBeat: lockVersion, KindEndGateway: lockVersion,
	KindCounterMerge: lifeVersion, KindCounterAdd: ComparedAddVersion,
	KindRaiseTokens: recoverVersion, KindRecover: recoverVersion, KindDocumentPut: systemVersion,
	KindDatabasePut: systemVersion, KindAdopt: adoptVersion,
}

// Check fails unless this build applies commands of the kind and version of c. A command that
// does not pass must not enter the log: it would stop every replica of such a build. The body
// is not looked at. Errors wrap ErrFormat, or ErrMalformed for version 0.
func Check(c Raw) error {
	if c.Kind >= Ignorable {
		return nil
	}
	if int(c.Kind) >= len(newest) || newest[c.Kind] == 0 {
		return fmt.Errorf("check command: %w: %s", ErrFormat, c.Kind)
	}
	return checkVersion(c, newest[c.Kind])
}
