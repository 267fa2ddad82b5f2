package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/daemon"
	"ganglion.dev/shared/protocol"
)

type options struct {
	nodeName   string
	sentinels  daemon.Strings
	name       string
	recheck    time.Duration
	period     time.Duration
	bootIDFile string
}

func main() { os.Exit(daemon.Main(&options{})) }

// Name implements daemon.Component.
func (o *options) Name() string { return "detector" }

// Bind implements daemon.Component.
func (o *options) Bind(fs *flag.FlagSet) {
	o.sentinels.Values = []string{"/sentinel/reboot-required"}
	fs.StringVar(&o.nodeName, "node", "", "`name` of the node that it runs on")
	fs.Var(&o.sentinels, "sentinel", "`path` of a file that says, by being there, that a reboot is required; repeatable")
	fs.StringVar(&o.name, "name", "sentinel", "`suffix` of its key on the node: "+protocol.NeedPrefix+"<suffix>")
	fs.DurationVar(&o.recheck, "recheck", time.Minute, "`how often` to look at the files themselves, for file systems that report no changes")
	fs.DurationVar(&o.period, "period", time.Hour, "`how often` to verify the key on the node with the API server")
	fs.StringVar(&o.bootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id", "`file` with the boot id of the running host")
}

// Validate implements daemon.Component.
func (o *options) Validate() []error {
	var errs []error
	if o.nodeName == "" {
		errs = append(errs, fmt.Errorf("--node: it must be given, or %s set", daemon.EnvName("node")))
	}
	for _, sentinel := range o.sentinels.Values {
		if !filepath.IsAbs(sentinel) {
			errs = append(errs, fmt.Errorf("--sentinel %q: want an absolute path", sentinel))
		}
	}
	if problems := content.IsLabelKey(protocol.NeedPrefix + o.name); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--name %q: %s", o.name, strings.Join(problems, "; ")))
	}
	if o.recheck < time.Second {
		errs = append(errs, fmt.Errorf("--recheck %s: want 1s or more", o.recheck))
	}
	if o.period < time.Second {
		errs = append(errs, fmt.Errorf("--period %s: want 1s or more", o.period))
	}
	return errs
}

// Run implements daemon.Component.
func (o *options) Run(ctx context.Context, env *daemon.Env) error {
	text, err := os.ReadFile(o.bootIDFile)
	if err != nil {
		return fmt.Errorf("--boot-id-file: %w", err)
	}
	bootID := strings.TrimSpace(string(text))
	if bootID == "" || strings.ContainsAny(bootID, " \t\n") {
		return errors.New("--boot-id-file: " + o.bootIDFile + " holds no boot id")
	}
	config, err := connect.Config(o.Name(), env.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := connect.REST(config)
	if err != nil {
		return err
	}
	watch := &watcher{sentinels: o.sentinels.Values}
	defer watch.close()
	env.Health.Need("node")
	d := &detector{
		options: *o, log: env.Log, health: env.Health, bootID: bootID, watch: watch,
		node:    &nodeClient{rest: client, node: o.nodeName, key: protocol.NeedPrefix + o.name},
		metrics: newMetrics(env.Registry, o.nodeName, o.name), backoff: newBackoff(),
	}
	d.run(ctx)
	return nil
}
