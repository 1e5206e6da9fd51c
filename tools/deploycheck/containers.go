package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

// checkDockerfile parses as BuildKit does; a warning of its linter is an error.
func checkDockerfile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return err
	}
	var problems error
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, location []parser.Range) {
		line := 0
		if len(location) > 0 {
			line = location[0].Start.Line
		}
		problems = errors.Join(problems, fmt.Errorf("line %d: %s: %s", line, rule, message))
	}})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		return err
	}
	if len(stages) == 0 {
		return errors.New("no stages")
	}
	return problems
}

// checkCompose loads the project as docker compose does, all profiles included.
func checkCompose(path string) error {
	options, err := cli.NewProjectOptions([]string{path},
		cli.WithEnv([]string{"JWT_SECRET=deploycheck", "SERVICE_ADMIN_PASSWORD=deploycheck"}), cli.WithProfiles([]string{"*"}))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	return project.CheckContainerNameUnicity()
}

// kinds are the objects that manifests may hold.
var kinds = map[string]func() any{
	"v1/Service":                    func() any { return &corev1.Service{} },
	"policy/v1/PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
	"apps/v1/StatefulSet":           func() any { return &appsv1.StatefulSet{} },
}

// checkKubernetes decodes each object into its type; unknown and repeated fields and values of
// a wrong type are errors.
func checkKubernetes(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	documents := yaml.NewDocumentDecoder(file)
	defer documents.Close()
	buffer := make([]byte, 1<<20)
	for count := 0; ; count++ {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) && count > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		var head struct{ APIVersion, Kind string }
		if err := strict.Unmarshal(buffer[:n], &head); err != nil {
			return err
		}
		kind, known := kinds[head.APIVersion+"/"+head.Kind]
		if !known {
			return fmt.Errorf("object %d is of unknown kind %s/%s", count, head.APIVersion, head.Kind)
		}
		if err := strict.UnmarshalStrict(buffer[:n], kind()); err != nil {
			return fmt.Errorf("object %d, a %s: %w", count, head.Kind, err)
		}
	}
}
