package check

import (
	_ "embed" // for the page
	"errors"
	"fmt"
	"html/template"
	"os"
	"slices"
)

// Band is a fault and when it lasted.
type Band struct {
	Name, About string
	From, To    int64
}

// Timeline is what a page shows of a history.
type Timeline struct {
	Title    string
	Ops      []Op
	Faults   []Band
	Problems []string
}

//go:embed timeline.html
var timelineText string

var timelinePage = template.Must(template.New("timeline").Funcs(template.FuncMap{
	"ms":   func(nanos int64) string { return fmt.Sprintf("%.1f", float64(nanos)/1e6) },
	"wide": func(from, to int64) string { return fmt.Sprintf("%.1f", max(float64(to-from)/1e6, 1)) },
}).Parse(timelineText))

// WriteTimeline writes a page that needs nothing else: a lane per client, operations
// coloured by outcome, faults as bands.
func WriteTimeline(path string, t Timeline) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create timeline: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	type lane struct {
		Client int
		Ops    []Op
	}
	page := struct {
		Timeline
		Lanes   []lane
		Start   int64
		Seconds []int64
	}{Timeline: t}
	byClient := make(map[int]int)
	end := int64(0)
	for i, op := range t.Ops {
		if i == 0 || op.Call < page.Start {
			page.Start = op.Call
		}
		end = max(end, op.Return)
		at, known := byClient[op.Client]
		if !known {
			at = len(page.Lanes)
			byClient[op.Client] = at
			page.Lanes = append(page.Lanes, lane{Client: op.Client})
		}
		page.Lanes[at].Ops = append(page.Lanes[at].Ops, op)
	}
	slices.SortFunc(page.Lanes, func(a, b lane) int { return a.Client - b.Client })
	page.Timeline = t.from(page.Start)
	for i := range page.Lanes {
		page.Lanes[i].Ops = Timeline{Ops: page.Lanes[i].Ops}.from(page.Start).Ops
	}
	for s := int64(0); s <= end-page.Start; s += 1e9 {
		page.Seconds = append(page.Seconds, s)
	}
	if err := timelinePage.Execute(f, page); err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	return nil
}

// from counts all times from start.
func (t Timeline) from(start int64) Timeline {
	t.Ops, t.Faults = slices.Clone(t.Ops), slices.Clone(t.Faults)
	for i := range t.Ops {
		t.Ops[i].Call -= start
		t.Ops[i].Return -= start
	}
	for i := range t.Faults {
		t.Faults[i].From -= start
		t.Faults[i].To -= start
	}
	return t
}
