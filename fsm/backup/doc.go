// Package backup is the file format of backups: the snapshots of all groups of a
// cluster, compressed, in a stream that can be written and read front to back. Every
// record has a checksum and the whole has a hash, so that damage is found before
// anything of a backup is used.
package backup
