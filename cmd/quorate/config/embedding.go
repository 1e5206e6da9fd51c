package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// The embedding providers.
const (
	providerLocal         = "local_model"
	providerRemote        = "remote_http"
	providerDeterministic = "deterministic"
	providerNoop          = "noop"
)

// Embedding configures semantic search. The zero value disables it.
type Embedding struct {
	// Provider is one of local_model, remote_http, deterministic, noop, or empty.
	Provider string
	// Model, BaseURL, APIKey and Dimension describe the provider; empty and zero
	// mean its default.
	Model, BaseURL, APIKey string
	Dimension              uint16
	// Maps are the maps whose records are vectorized on write, by name.
	Maps map[string]VectorMap

	mapsText string
}

// VectorMap says which fields of a map's records are vectorized.
type VectorMap struct {
	// Fields are the attributes whose text is embedded, at least one.
	Fields []string `json:"fields"`
	// Dimension must equal the provider's.
	Dimension int `json:"dimension"`
	// IndexName names the vector index. Optional.
	IndexName string `json:"indexName,omitempty"`
}

func (e *Embedding) setProvider(text string) error {
	switch name := strings.ToLower(strings.TrimSpace(text)); name {
	case "", "none":
		e.Provider = ""
	case "http":
		e.Provider = providerRemote
	case providerLocal, providerRemote, providerDeterministic, providerNoop:
		e.Provider = name
	default:
		return fmt.Errorf("%q is not one of local_model, remote_http, http, deterministic, noop, none", text)
	}
	return nil
}

func (e *Embedding) setBaseURL(text string) error {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("must be an http or https URL")
	}
	if u.User != nil {
		return errors.New("must not contain a user name or password; use SERVICE_EMBEDDING_API_KEY")
	}
	e.BaseURL = u.String()
	return nil
}

func (e *Embedding) setDimension(text string) error {
	n, err := parseWhole(text, 16)
	if err == nil && n == 0 {
		err = errors.New("must be greater than zero")
	}
	e.Dimension = uint16(n)
	return err
}

func (e *Embedding) setMaps(text string) error {
	dec := json.NewDecoder(bytes.NewBufferString(text))
	dec.DisallowUnknownFields()
	var maps map[string]VectorMap
	if err := dec.Decode(&maps); err != nil {
		return fmt.Errorf("is not a JSON object of {\"fields\": [...], \"dimension\": n}: %w", err)
	}
	if dec.More() {
		return errors.New("has text after the JSON object")
	}
	for name, m := range maps {
		if name == "" || len(m.Fields) == 0 || slices.Contains(m.Fields, "") || m.Dimension < 1 {
			return fmt.Errorf("map %q needs fields and a dimension", name)
		}
	}
	e.Maps, e.mapsText = maps, text
	return nil
}

// provider is the effective provider as text.
func (e *Embedding) provider() string {
	if e.Provider == "" {
		return "none"
	}
	return e.Provider
}

// dimension is the effective vector size as text, empty if there is none.
func (e *Embedding) dimension() string {
	if d := e.withDefaults(); d.Dimension != 0 {
		return number(d.Dimension)
	}
	return ""
}

// withDefaults fills what the provider does not need to be told.
func (e *Embedding) withDefaults() Embedding {
	d := *e
	switch e.Provider {
	case providerLocal:
		d.Model = orDefault(d.Model, "nomic-embed-text")
		d.BaseURL = orDefault(d.BaseURL, "http://localhost:11434")
		d.Dimension = orDefault(d.Dimension, 768)
	case providerDeterministic:
		d.Dimension = orDefault(d.Dimension, 256)
	case providerNoop:
		d.Dimension = orDefault(d.Dimension, 4)
	}
	return d
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// problems checks the provider against what it needs and against the maps.
func (e *Embedding) problems() []Problem {
	if e.Provider == "" {
		return nil
	}
	var problems []Problem
	miss := func(missing bool, name string) {
		if missing {
			problems = append(problems, Problem{Name: name, Reason: "is required for the provider " + e.Provider})
		}
	}
	d := e.withDefaults()
	if e.Provider == providerRemote {
		miss(d.Model == "", "SERVICE_EMBEDDING_MODEL")
		miss(d.BaseURL == "", "SERVICE_EMBEDDING_BASE_URL")
		miss(d.Dimension == 0, "SERVICE_EMBEDDING_DIMENSION")
	}
	for _, name := range sortedKeys(e.Maps) {
		if got := e.Maps[name].Dimension; d.Dimension != 0 && got != int(d.Dimension) {
			problems = append(problems, Problem{
				Name:   "SERVICE_VECTOR_MAPS",
				Reason: fmt.Sprintf("map %q has dimension %d, the provider %d", name, got, d.Dimension),
			})
		}
	}
	return append(problems, Problem{
		Name:   "SERVICE_EMBEDDING_PROVIDER",
		Reason: fmt.Sprintf("%q: semantic search is not part of this build; unset it or set none", e.Provider),
	})
}
