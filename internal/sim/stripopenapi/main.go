// Command stripopenapi cuts the vendors' OpenAPI descriptions down to what the
// simulator serves: the operations of its routes, the components that those
// reach, and nothing that only documents.
//
//	go run ./internal/sim/stripopenapi -from DIR -to testdata/openapi
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fullsend/poll-action/internal/sim"
)

func main() {
	from := flag.String("from", "", "folder with jira-cloud-v3.json and github-rest.json")
	to := flag.String("to", "testdata/openapi", "folder to write to")
	flag.Parse()
	if err := run(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "stripopenapi:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	for name, routes := range map[string][]string{
		"jira-cloud-v3.json": sim.NewJira(sim.JiraConfig{}).Routes(),
		"github-rest.json":   sim.NewGitHub(sim.GitHubConfig{}).Routes(),
	} {
		raw, err := os.ReadFile(filepath.Join(from, name)) //nolint:gosec // the developer names the folder
		if err != nil {
			return err
		}
		out, err := strip(raw, routes)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(to, name), out, 0o600); err != nil { //nolint:gosec // likewise
			return err
		}
	}
	return nil
}

// strip keeps the operations that routes name and what they refer to.
func strip(raw []byte, routes []string) ([]byte, error) {
	var doc struct {
		OpenAPI    string                               `json:"openapi"`
		Info       map[string]any                       `json:"info"`
		Paths      map[string]map[string]any            `json:"paths"`
		Components map[string]map[string]map[string]any `json:"components"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	missing := slices.Clone(routes)
	for path, operations := range doc.Paths {
		for method := range operations {
			route := anonymous(strings.ToUpper(method) + " " + path)
			at := slices.IndexFunc(missing, func(r string) bool { return anonymous(r) == route })
			switch {
			case method == "parameters":
			case at < 0:
				delete(operations, method)
			default:
				missing = slices.Delete(missing, at, at+1)
			}
		}
		if len(operations) == 0 {
			delete(doc.Paths, path)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("not described: %s", strings.Join(missing, ", "))
	}
	used := map[string]map[string]any{}
	var collect func(any)
	collect = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				collect(e)
			}
		case map[string]any:
			for _, e := range v {
				collect(e)
			}
			if _, isText := v["description"].(string); isText {
				v["description"] = "" // responses must have one
			}
			ref, _ := v["$ref"].(string)
			kind, name, ok := strings.Cut(strings.TrimPrefix(ref, "#/components/"), "/")
			if !ok || used[kind][name] != nil || doc.Components[kind][name] == nil {
				return
			}
			if used[kind] == nil {
				used[kind] = map[string]any{}
			}
			used[kind][name] = doc.Components[kind][name]
			collect(doc.Components[kind][name])
		}
	}
	for _, operations := range doc.Paths {
		for _, operation := range operations {
			collect(operation)
		}
	}
	return json.Marshal(map[string]any{
		"openapi": doc.OpenAPI,
		"info":    map[string]any{"title": doc.Info["title"], "version": doc.Info["version"]},
		"paths":   doc.Paths, "components": used,
	})
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// anonymous is a route without the names of its wildcards.
func anonymous(route string) string { return wildcard.ReplaceAllString(route, "{}") }
