package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// The benchmarks print the figures that the project promises: requests and
// virtual time of a cycle, and what a process costs from start to exit. Run
//
//	go test -run '^$' -bench . -benchtime 1x ./internal/cli

// BenchmarkIdleCycle: 50 candidates, nothing new.
func BenchmarkIdleCycle(b *testing.B) {
	for b.Loop() {
		synctestBench(b, func(tb testing.TB) {
			tb.Helper()
			w := simtest.New(tb)
			createIssues(w, 50)
			p := newPoller(tb, w, testConfig("m: 50, n: 5"), 1)
			settle(tb, p)
			p.mustCycle()
			b.ReportMetric(float64(w.Net.Count(simtest.JiraHost)), "jira-requests")
			b.ReportMetric(float64(w.Net.Count(simtest.GitHubHost)), "github-requests")
		})
	}
}

// BenchmarkFiveOfFifty: five of fifty candidates have one event each, every
// request takes 100 ms.
func BenchmarkFiveOfFifty(b *testing.B) {
	for b.Loop() {
		synctestBench(b, func(tb testing.TB) {
			tb.Helper()
			jira, github, took := fiveOfFifty(tb, 100*time.Millisecond)
			b.ReportMetric(float64(jira), "jira-requests")
			b.ReportMetric(float64(github), "github-requests")
			b.ReportMetric(took.Seconds(), "virtual-seconds")
		})
	}
}

// synctestBench runs f in a bubble of virtual time: a benchmark has none of its
// own, so a test inside it does.
func synctestBench(b *testing.B, f func(tb testing.TB)) {
	b.Helper()
	ok := testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: b.Name(), F: func(t *testing.T) { t.Helper(); synctest.Test(t, func(t *testing.T) { t.Helper(); f(t) }) },
	}})
	if !ok {
		b.Fatal("the measured cycle failed")
	}
}

// BenchmarkStartToExit: a process from start to exit, idle, no latency; wall time
// and peak memory.
func BenchmarkStartToExit(b *testing.B) {
	program := build(b)
	w := simtest.New(b)
	createIssues(w, 50)
	p := newPoller(b, w, testConfig("m: 50, n: 5"), 1)
	jira, github := w.Listen(b)
	p.env["JIRA_BASE_URL"], p.env["GITHUB_API_URL"] = jira, github
	p.write("config.yaml", testConfig("m: 50, n: 5"))
	w.Advance(time.Hour) // the issues have been there for an hour
	if _, err := start(p, program, "poll").CombinedOutput(); err != nil {
		b.Fatal(err)
	}
	var peak int64
	for b.Loop() {
		cmd := start(p, program, "poll")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		for running := true; running; {
			select {
			case err := <-done:
				if err != nil {
					b.Fatal(err)
				}
				running = false
			case <-time.After(time.Millisecond):
				peak = max(peak, highWater(cmd.Process.Pid))
			}
		}
	}
	if peak == 0 {
		b.Fatal("this system does not tell peak memory")
	}
	b.ReportMetric(float64(peak)/1024, "peak-MB")
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/process")
}

// highWater returns the peak memory of a live process in KiB, as the kernel tells
// it; what wait tells would include the memory of the process that started it.
func highWater(pid int) int64 {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64) // 0 is no peak
			return n
		}
	}
	return 0
}

// build builds the program as the Dockerfile does.
func build(tb testing.TB) string {
	tb.Helper()
	program := filepath.Join(tb.TempDir(), "fullsend-poll")
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "github.com/fullsend/poll-action")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return program
}

// start makes a command that runs the program as the poller's process.
func start(p *poller, program string, args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), program, append(args, "--config", filepath.Join(p.dir, "config.yaml"))...)
	for k, v := range p.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}
