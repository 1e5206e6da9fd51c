package quorate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"runtime/pprof"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/quorate/quorate/raftnode/mux"
)

// supportBytes bounds each text of a Support, so that all fit into one answer.
const supportBytes = 1 << 20

// Support is what somebody who helps needs to know about a node. It holds no secret and no
// value of a record; names of nodes, maps and addresses may be in it.
type Support struct {
	Status *Status `json:"status"`
	// Metrics is the text that /metrics shows, Goroutines what runs, Build what the
	// executable was made of, Log the end of the log.
	Metrics    string `json:"metrics"`
	Goroutines string `json:"goroutines"`
	Build      string `json:"build"`
	Log        string `json:"log"`
}

// FetchSupport asks the node whose peer port is at addr for its Support; see FetchStatus.
func FetchSupport(ctx context.Context, addr, secret string) (*Support, error) {
	var s Support
	if err := ask(ctx, addr, secret, methodSupport, nil, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// handleSupport answers FetchSupport.
func (s *Server) handleSupport(node *Node) {
	node.Mux().Handle(methodSupport, audited(s.log, "support bundle asked for", func(context.Context, mux.Peer, []byte) ([]byte, error) {
		metrics, err := metricsText(s.registry)
		if err != nil {
			return nil, err
		}
		var goroutines bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&goroutines, 1); err != nil {
			return nil, fmt.Errorf("list goroutines: %w", err)
		}
		bundle := Support{Status: s.status(node), Metrics: head(metrics), Goroutines: head(goroutines.String())}
		if info, ok := debug.ReadBuildInfo(); ok {
			bundle.Build = info.String()
		}
		if s.logTail != nil {
			bundle.Log = s.logTail()
		}
		return json.Marshal(bundle)
	}))
}

func head(text string) string {
	if len(text) > supportBytes {
		return text[:supportBytes]
	}
	return text
}

// metricsText is what a registry shows, in the text format.
func metricsText(g prometheus.Gatherer) (string, error) {
	families, err := g.Gather()
	if err != nil {
		return "", fmt.Errorf("gather metrics: %w", err)
	}
	var b bytes.Buffer
	for _, family := range families {
		if err := appendFamily(&b, family); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

func appendFamily(b *bytes.Buffer, family *dto.MetricFamily) error {
	if _, err := expfmt.MetricFamilyToText(b, family); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}
