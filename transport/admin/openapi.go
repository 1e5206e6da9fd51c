package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Operation describes one route.
type Operation struct {
	Method, Path, Summary string
	// Status is that of success; zero is 200.
	Status int
	// Request and Response are values of the types of the JSON bodies; nil is none.
	Request, Response any
	// MediaType is that of a response that is not JSON of a type.
	MediaType string
	// Query are the names of query parameters.
	Query []string
	// Failures are the statuses beside those of every route of its access.
	Failures []int
}

// schemas gathers the types that the description refers to.
type schemas map[string]any

// describe renders the description of the interface, OpenAPI 3.1.
func describe(operations []Operation) ([]byte, error) {
	all := schemas{}
	paths := map[string]map[string]any{}
	for _, op := range operations {
		path := strings.ReplaceAll(op.Path, "...}", "}")
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path][strings.ToLower(op.Method)] = all.operation(op, path)
	}
	all["Error"] = map[string]any{
		"type": "object", "required": []string{"code", "message"},
		"properties": map[string]any{
			"code": map[string]any{"type": "integer"}, "message": map[string]any{"type": "string"}, "field": map[string]any{"type": "string"},
		},
	}
	b, err := json.Marshal(map[string]any{
		"openapi": "3.1.0",
		"info":    map[string]any{"title": "Quorate", "version": "1", "description": "The HTTP interface of one node."},
		"paths":   paths,
		"components": map[string]any{
			"schemas": all,
			"securitySchemes": map[string]any{
				"bearer_auth": map[string]any{"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("describe the interface: %w", err)
	}
	return b, nil
}

func (s schemas) operation(op Operation, path string) map[string]any {
	status := op.Status
	if status == 0 {
		status = http.StatusOK
	}
	success := map[string]any{"description": http.StatusText(status)}
	switch {
	case op.Response != nil:
		success["content"] = map[string]any{"application/json": map[string]any{"schema": s.of(reflect.TypeOf(op.Response))}}
	case op.MediaType != "":
		success["content"] = map[string]any{op.MediaType: map[string]any{}}
	}
	responses := map[string]any{strconv.Itoa(status): success}
	failures := slices.Clone(op.Failures)
	doc := map[string]any{"summary": op.Summary, "responses": responses}
	if strings.HasPrefix(path, "/api/admin/") {
		doc["security"] = []any{map[string]any{"bearer_auth": []string{}}}
		failures = append(failures, 401, 403, 429)
	}
	for _, code := range failures {
		responses[strconv.Itoa(code)] = map[string]any{
			"description": http.StatusText(code),
			"content":     map[string]any{"application/json": map[string]any{"schema": ref("Error")}},
		}
	}
	if op.Request != nil {
		doc["requestBody"] = map[string]any{
			"required": true, "content": map[string]any{"application/json": map[string]any{"schema": s.of(reflect.TypeOf(op.Request))}},
		}
	}
	var parameters []any
	for _, part := range strings.Split(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			parameters = append(parameters, parameter(strings.TrimSuffix(name, "}"), "path"))
		}
	}
	for _, name := range op.Query {
		parameters = append(parameters, parameter(name, "query"))
	}
	if parameters != nil {
		doc["parameters"] = parameters
	}
	return doc
}

func parameter(name, in string) map[string]any {
	return map[string]any{"name": name, "in": in, "required": in == "path", "schema": map[string]any{"type": "string"}}
}

func ref(name string) map[string]any { return map[string]any{"$ref": "#/components/schemas/" + name} }

// of is the schema of a type; structs are referred to by name.
func (s schemas) of(t reflect.Type) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if s[name] == nil {
			s[name] = map[string]any{} // it may refer to itself
			s[name] = s.object(t)
		}
		return ref(name)
	default: // any value
		return map[string]any{}
	}
}

func (s schemas) object(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range jsonFields(t) {
		properties[f.name] = s.of(f.kind)
		if !f.optional {
			required = append(required, f.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// jsonField is one field of a struct as JSON has it.
type jsonField struct {
	name     string
	kind     reflect.Type
	optional bool
}

// jsonFields lists the fields of a struct, those of embedded ones included.
func jsonFields(t reflect.Type) (list []jsonField) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			list = append(list, jsonFields(f.Type)...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" {
			list = append(list, jsonField{name, f.Type, options == "omitempty"})
		}
	}
	return list
}

// jsonNames lists the names of the fields of a struct.
func jsonNames(v any) (names []string) {
	for _, f := range jsonFields(reflect.TypeOf(v)) {
		names = append(names, f.name)
	}
	return names
}

func (h *Handler) serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(h.openapi) // a client that is gone needs no answer
}
