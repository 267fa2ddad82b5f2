package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"ganglion.dev/shared/daemon"
)

type options struct {
	daemon.LogOptions
	method     string
	bootID     string
	bootIDFile string
	initPID    int
	timeout    time.Duration
	node       string
	grant      string
}

func (o *options) bind(fs *flag.FlagSet) {
	o.LogOptions.Bind(fs)
	fs.StringVar(&o.method, "method", "signal", "`how` to reboot: signal (SIGRTMIN+5 to the host's PID 1, which systemd takes for reboot; needs hostPID and CAP_KILL)")
	fs.StringVar(&o.bootID, "boot-id", "", "boot `id` that the reboot is meant for; in any other boot nothing is done")
	fs.StringVar(&o.bootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id", "`file` with the boot id of the running host")
	fs.IntVar(&o.initPID, "init-pid", 1, "`pid` of the host's init, for tests")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long the host may take to go down")
	fs.StringVar(&o.node, "node", "", "`name` of the node, for the logs")
	fs.StringVar(&o.grant, "grant", "", "`grant` that the Job was made for, for the logs")
}

func (o *options) validate() []error {
	errs := o.LogOptions.Validate()
	if o.method != "signal" {
		errs = append(errs, fmt.Errorf("--method %q: want signal", o.method))
	}
	if o.bootID == "" {
		errs = append(errs, errors.New("--boot-id: it must be given: without it nobody knows whether the reboot has been done already"))
	}
	if o.initPID < 1 {
		errs = append(errs, fmt.Errorf("--init-pid %d: want a pid", o.initPID))
	}
	if o.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout %s: want more than 0", o.timeout))
	}
	return errs
}

func main() { os.Exit(run()) }

func run() int {
	var o options
	fs := flag.NewFlagSet("rebooter", flag.ContinueOnError)
	o.bind(fs)
	err := daemon.Parse(fs, os.Args[1:], os.LookupEnv, o.validate)
	if code, ended := daemon.Exit(err, fs, os.Stdout, os.Stderr); ended {
		return code
	}
	log := daemon.NewLogger(o.LogOptions, os.Stderr).Named("rebooter").With(zap.String("node", o.node), zap.String("grant", o.grant))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	done, err := reboot(ctx, o)
	switch {
	case err != nil:
		log.Error("the host was not rebooted", zap.Error(err))
		return 1
	case !done:
		log.Info("nothing to do: the host is in another boot already", zap.String("boot-id", o.bootID))
	default:
		log.Info("the host is going down")
	}
	return 0
}

// reboot begins the shutdown and waits for its end, which ends this process too.
// It tells whether a shutdown was begun: not where the running boot is not the
// expected one.
func reboot(ctx context.Context, o options) (bool, error) {
	running, err := bootID(o.bootIDFile)
	if err != nil {
		return false, err
	}
	if running != o.bootID {
		return false, nil
	}
	if err := signalInit(o.initPID); err != nil {
		return false, err
	}
	timer := time.NewTimer(o.timeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return true, nil // the shutdown stops the pods first
	case <-timer.C:
		return true, fmt.Errorf("still up %s after --method=%s", o.timeout, o.method)
	}
}

func bootID(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the running boot id: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if id == "" {
		return "", fmt.Errorf("reading the running boot id: %s is empty", file)
	}
	return id, nil
}
