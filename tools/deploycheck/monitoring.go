package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// checkRules parses the alerts, their expressions and templates as Prometheus does.
func checkRules(path string) error {
	groups, problems := rulefmt.ParseFile(path, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	if len(groups.Groups) == 0 {
		return errors.New("no groups")
	}
	return nil
}

// variables are what Grafana puts into expressions.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*")

// checkBoard parses the expressions of the panels, and sees that no two panels overlap.
func checkBoard(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		return err
	}
	promql := parser.NewParser(parser.Options{})
	taken := map[[2]int]string{}
	var problems error
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			if _, err := promql.ParseExpr(variables.Replace(target.Expr)); err != nil {
				problems = errors.Join(problems, fmt.Errorf("panel %q: %w", p.Title, err))
			}
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, is := taken[place]; is {
					return fmt.Errorf("panel %q lies on %q", p.Title, other)
				}
				taken[place] = p.Title
			}
		}
	}
	return problems
}
