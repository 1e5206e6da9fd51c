// Package disk mounts directories that behave like disks which lose power, fill up, fail
// or hang: what a process has written and not synced is kept apart, and lost when the
// power is cut. Names are not: files that were created, renamed or removed stay so. It
// needs Linux, FUSE, and the right to mount.
package disk
