package daemon

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { value, is := env[name]; return value, is }
}

func TestAFlagBeatsItsEnvironmentVariableWhichBeatsTheDefault(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want time.Duration
	}{
		"neither":     {nil, nil, time.Hour},
		"environment": {nil, map[string]string{"GANGLION_RE_CHECK": "2m"}, 2 * time.Minute},
		"flag":        {[]string{"--re-check=3m"}, nil, 3 * time.Minute},
		"both":        {[]string{"--re-check", "3m"}, map[string]string{"GANGLION_RE_CHECK": "2m"}, 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			fs := flag.NewFlagSet("x", flag.ContinueOnError)
			got := fs.Duration("re-check", time.Hour, "")
			if err := Parse(fs, c.args, lookup(c.env), nil); err != nil || *got != c.want {
				t.Errorf("got %s, %v", *got, err)
			}
		})
	}
}

func TestAllMistakesAreToldAtOnceEachWithItsFlag(t *testing.T) {
	var o Options
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	o.Bind(fs)
	fs.Duration("period", time.Hour, "")
	fs.Int("workers", 1, "")
	err := Parse(fs, []string{"--no-such", "value", "--workers=many", "--log-level", "loud", "--log-format=xml", "--kubeconfig=/no/such", "stray"},
		lookup(map[string]string{"GANGLION_PERIOD": "soon", "GANGLION_LISTEN": "nowhere"}), o.Validate)
	if err == nil {
		t.Fatal("it is accepted")
	}
	for _, want := range []string{"no-such", "workers", "--log-level", "--log-format", "--kubeconfig", "stray", "GANGLION_PERIOD", "--listen"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in:\n%v", want, err)
		}
	}
}

func TestARepeatedFlagReplacesItsDefaultAndAddsUp(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want []string
	}{
		"none":        {nil, nil, []string{"/default"}},
		"one":         {[]string{"--path=/a"}, nil, []string{"/a"}},
		"two":         {[]string{"--path=/a", "--path=/b"}, nil, []string{"/a", "/b"}},
		"environment": {nil, map[string]string{"GANGLION_PATH": "/a,/b"}, []string{"/a", "/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			fs := flag.NewFlagSet("x", flag.ContinueOnError)
			s := Strings{Values: []string{"/default"}}
			fs.Var(&s, "path", "")
			if err := Parse(fs, c.args, lookup(c.env), nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, s.Values); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHealthNamesWhatIsLateAndWhatIsMissing(t *testing.T) {
	now := time.Unix(0, 0)
	h := NewHealth(func() time.Time { return now })
	h.Beat("watch", time.Minute)
	h.Need("caches")
	if err := h.Alive(); err != nil {
		t.Error(err)
	}
	if err := h.Ready(); err == nil || !strings.Contains(err.Error(), "caches") {
		t.Errorf("got %v", err)
	}
	now = now.Add(2 * time.Minute)
	if err := h.Alive(); err == nil || !strings.Contains(err.Error(), "watch is late by 1m0s") {
		t.Errorf("got %v", err)
	}
	h.Forget("watch")
	h.SetReady("caches", nil)
	if err := errors.Join(h.Alive(), h.Ready()); err != nil {
		t.Error(err)
	}
}

// output is written by one goroutine and read by another.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

type component struct {
	run func(context.Context, *Env) error
}

func (component) Name() string                              { return "thing" }
func (component) Bind(*flag.FlagSet)                        {}
func (component) Validate() []error                         { return nil }
func (c component) Run(ctx context.Context, env *Env) error { return c.run(ctx, env) }

func TestADaemonServesMetricsAndProbesAndEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan *Env, 1)
	c := component{func(ctx context.Context, env *Env) error {
		env.Health.Need("caches")
		running <- env
		<-ctx.Done()
		return ctx.Err()
	}}
	var log output
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, c, []string{"--listen=127.0.0.1:0"}, lookup(nil), io.Discard, &log)
	}()
	env := <-running
	address := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(log.String())
	if address == nil {
		t.Fatalf("no address in %s", log.String())
	}
	get := func(path string) (int, string) {
		answer, err := http.Get("http://" + address[1] + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if code, text := get("/metrics"); code != 200 || !strings.Contains(text, `ganglion_build_info{component="thing",version="dev"} 1`) {
		t.Errorf("/metrics: %d %s", code, text)
	}
	if code, _ := get("/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
	if code, text := get("/readyz"); code != 503 || !strings.Contains(text, "caches: not yet") {
		t.Errorf("/readyz: %d %s", code, text)
	}
	env.Health.SetReady("caches", nil)
	if code, _ := get("/readyz"); code != 200 {
		t.Errorf("/readyz: %d", code)
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d\n%s", got, log.String())
	}
}

func TestExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		run  func(context.Context, *Env) error
		want int
		says string
	}{
		"an error":     {nil, func(context.Context, *Env) error { return errors.New("it broke") }, 1, "it broke"},
		"a panic":      {nil, func(context.Context, *Env) error { panic("at the disco") }, 1, "at the disco"},
		"bad flags":    {[]string{"--log-level=loud"}, nil, 2, "--log-level"},
		"help":         {[]string{"--help"}, nil, 0, "GANGLION_LOG_LEVEL"},
		"version":      {[]string{"--version"}, nil, 0, "thing dev"},
		"a taken port": {[]string{"--listen=256.0.0.1:1"}, nil, 1, "--listen"},
	} {
		t.Run(name, func(t *testing.T) {
			var said output
			args := append([]string{"--listen=127.0.0.1:0"}, c.args...)
			if got := run(t.Context(), component{c.run}, args, lookup(nil), &said, &said); got != c.want || !strings.Contains(said.String(), c.says) {
				t.Errorf("exit code %d, want %d, said %s", got, c.want, said.String())
			}
		})
	}
}
