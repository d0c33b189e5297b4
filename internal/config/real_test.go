package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryRealConfigurationIsRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../shared/realdata/fullsend/config/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("the shared real data is not here")
	}
	// What the contract says is an error.
	refused := map[string]string{"org-fullsend-ai.yaml": "the old form of an agent"}
	agents := map[string]string{
		"protobot.yaml":      "code fix prioritize review retro triage=harness/triage.yaml",
		"org-quay.yaml":      "triage=harness/triage.yaml code=harness/code.yaml -review retro=harness/retro.yaml prioritize=harness/prioritize.yaml",
		"nethack.yaml":       "triage=harness/triage.yaml",
		"fullsend-self.yaml": "qualityflow=https://raw.githubusercontent.com/redhat-community-ai-tools/qualityflow-fullsend/f6311b4f30ee5c23c597dba07bccc8ac0aa991be/harness/qualityflow.yaml#sha256=c0a51b2f75172aebd577fd38c8012a7c566a84f84812ebd9aa4cc07ad3b2220e",
	}
	for _, name := range files {
		base := filepath.Base(name)
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			cfg, problems := Parse(raw, nil, Options{})
			if want := refused[base]; want != "" {
				if !strings.Contains(problems.Error(), want) {
					t.Errorf("problems %v, want %q", problems, want)
				}
				return
			}
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			want, known := agents[base]
			if !known {
				return
			}
			var got []string
			for _, a := range cfg.Agents {
				s := a.Name
				if a.Source != "" {
					s += "=" + a.Source
				}
				if !a.Enabled {
					s = "-" + s
				}
				got = append(got, s)
			}
			if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
