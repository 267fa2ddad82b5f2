package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
)

// Version is stamped by the linker.
var Version = "dev"

// Component is one daemon: what it adds to the flags of all, and what it does.
type Component interface {
	Name() string
	Bind(fs *flag.FlagSet)
	// Validate gives every mistake in the flags, each naming its flag.
	Validate() []error
	// Run works until the context is done. It gives back what it holds before
	// it returns.
	Run(ctx context.Context, env *Env) error
}

// Env is what a daemon is handed.
type Env struct {
	Options
	Log      *zap.Logger
	Registry *prometheus.Registry
	Health   *Health
}

// Main runs a daemon and returns its exit code: 0 after a signal, 1 for an
// error, 2 for bad flags.
func Main(c Component) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, c, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
}

func run(ctx context.Context, c Component, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	var o Options
	fs := flag.NewFlagSet(c.Name(), flag.ContinueOnError)
	o.Bind(fs)
	c.Bind(fs)
	err := Parse(fs, args, lookup, func() []error { return append(o.Validate(), c.Validate()...) })
	if code, ended := Exit(err, fs, stdout, stderr); ended {
		return code
	}
	log := NewLogger(o.LogOptions, stderr).Named(c.Name())
	defer log.Sync()
	log.Info("starting", zap.String("version", Version), zap.Any("flags", values(fs)))
	if err := serve(ctx, c, o, log); err != nil {
		log.Error("stopped", zap.Error(err))
		return 1
	}
	log.Info("stopped")
	return 0
}

// Exit tells whether the program ends with what Parse returned, and how: help and
// the version end it well, mistakes with exit code 2 and all of them listed.
func Exit(err error, fs *flag.FlagSet, stdout, stderr io.Writer) (code int, ended bool) {
	switch {
	case err == nil:
		return 0, false
	case errors.Is(err, flag.ErrHelp):
		usage(stdout, fs)
		return 0, true
	case errors.Is(err, errVersion):
		fmt.Fprintf(stdout, "%s %s\n", fs.Name(), Version)
		return 0, true
	}
	fmt.Fprintf(stderr, "%s: bad flags:\n%v\n%s --help lists all flags\n", fs.Name(), err, fs.Name())
	return 2, true
}

func values(fs *flag.FlagSet) map[string]string {
	m := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) {
		if f.Name != "version" {
			m[f.Name] = f.Value.String()
		}
	})
	return m
}

// serve opens the port and runs the component behind it.
func serve(ctx context.Context, c Component, o Options, log *zap.Logger) error {
	env := &Env{Options: o, Log: log, Registry: prometheus.NewRegistry(), Health: NewHealth(time.Now)}
	env.Registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "ganglion_build_info",
			Help:        "Always 1; the labels tell the component and its version.",
			ConstLabels: prometheus.Labels{"component": c.Name(), "version": Version},
		}, func() float64 { return 1 }),
	)
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("opening the port of --listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics(env.Registry))
	mux.Handle("GET /healthz", probe(env.Health.Alive))
	mux.Handle("GET /readyz", probe(env.Health.Ready))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	log.Info("listening", zap.Stringer("address", listener.Addr()))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ran := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				ran <- fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		ran <- c.Run(ctx, env)
	}()
	select {
	case err = <-ran:
	case err = <-served:
		cancel()
		<-ran
	}
	closing, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	_ = server.Shutdown(closing)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
