// Command deploycheck reads the files of the folder deploy, and the Dockerfile, with the code
// of the programs that they are for: what those would refuse is printed, and the status is 1.
// It needs no daemon and no network.
//
//	deploycheck REPOSITORY
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// checks are the files, each with what reads it.
var checks = []struct {
	file  string
	check func(path string) error
}{
	{"Dockerfile", checkDockerfile},
	{"deploy/compose.yml", checkCompose},
	{"deploy/kubernetes/quorate.yaml", checkKubernetes},
	{"deploy/prometheus/alerts.yml", checkRules},
	{"deploy/grafana/quorate.json", checkBoard},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: deploycheck REPOSITORY")
		os.Exit(2)
	}
	var failed error
	for _, c := range checks {
		if err := c.check(filepath.Join(os.Args[1], c.file)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", c.file, err))
			continue
		}
		fmt.Println("ok", c.file)
	}
	if failed != nil {
		fmt.Fprintln(os.Stderr, failed)
		os.Exit(1)
	}
}
