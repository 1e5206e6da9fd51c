// Package e2e holds the end-to-end tests: real quorate processes under kills, pauses,
// cut links, wiped disks and hostile input. README.md says how to run them.
package e2e
