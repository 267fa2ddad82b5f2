package daemon

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"go.uber.org/zap/zapcore"
)

// EnvPrefix starts the environment variable of every flag: --log-level is also
// GANGLION_LOG_LEVEL.
const EnvPrefix = "GANGLION_"

// EnvName is the environment variable of a flag.
func EnvName(flagName string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// Options are the flags that every daemon has.
type Options struct {
	Listen     string
	Kubeconfig string
	LogOptions
}

// LogOptions are the flags of logging.
type LogOptions struct {
	Level  string
	Format string
}

// Bind adds the flags of every daemon.
func (o *Options) Bind(fs *flag.FlagSet) {
	fs.StringVar(&o.Listen, "listen", ":8080", "`address` of the one HTTP port: /metrics, /healthz, /readyz")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file` for use outside of a cluster; in-cluster otherwise")
	o.LogOptions.Bind(fs)
}

// Validate gives every mistake, each naming its flag.
func (o *Options) Validate() []error {
	errs := o.LogOptions.Validate()
	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		errs = append(errs, fmt.Errorf("--listen %q: %w", o.Listen, err))
	}
	if o.Kubeconfig != "" {
		if _, err := os.Stat(o.Kubeconfig); err != nil {
			errs = append(errs, fmt.Errorf("--kubeconfig: %w", err))
		}
	}
	return errs
}

// Bind adds the flags of logging.
func (o *LogOptions) Bind(fs *flag.FlagSet) {
	fs.StringVar(&o.Level, "log-level", "info", "`level` of the logs: debug, info, warn or error")
	fs.StringVar(&o.Format, "log-format", "json", "`format` of the logs: json or console")
}

// Validate gives every mistake, each naming its flag.
func (o *LogOptions) Validate() []error {
	var errs []error
	if _, err := zapcore.ParseLevel(o.Level); err != nil {
		errs = append(errs, fmt.Errorf("--log-level %q: want debug, info, warn or error", o.Level))
	}
	if o.Format != "json" && o.Format != "console" {
		errs = append(errs, fmt.Errorf("--log-format %q: want json or console", o.Format))
	}
	return errs
}

// errVersion says that --version was given.
var errVersion = errors.New("version asked for")

// Parse reads the flags and, for those not given, their environment variables;
// a flag beats the environment. The error joins every mistake, each of which
// names its flag. validate is asked only for values that could be read.
func Parse(fs *flag.FlagSet, args []string, lookup func(string) (string, bool), validate func() []error) error {
	version := fs.Bool("version", false, "print the version and exit")
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	var errs []error
	for {
		err := fs.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		args = fs.Args()
		if err == nil {
			break
		}
		errs = append(errs, err)
		if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
			args = args[1:] // the value of a flag that is not known
		}
	}
	if *version {
		return errVersion
	}
	for _, arg := range args {
		errs = append(errs, fmt.Errorf("unexpected argument %q", arg))
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	fs.VisitAll(func(f *flag.Flag) {
		if value, set := lookup(EnvName(f.Name)); set && !given[f.Name] {
			if err := fs.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s (for --%s): invalid value %q: %w", EnvName(f.Name), f.Name, value, err))
			}
		}
	})
	if validate != nil {
		errs = append(errs, validate()...)
	}
	return errors.Join(errs...)
}

// usage writes the flags with their environment variables.
func usage(w io.Writer, fs *flag.FlagSet) {
	fmt.Fprintf(w, "Usage: %s [flags]\nA flag that is not given is read from its environment variable.\n\n", fs.Name())
	fs.VisitAll(func(f *flag.Flag) {
		kind, text := flag.UnquoteUsage(f)
		fmt.Fprintf(w, "  --%s %s\n      %s", f.Name, kind, text)
		if f.DefValue != "" && f.DefValue != "false" {
			fmt.Fprintf(w, " (default %s)", f.DefValue)
		}
		fmt.Fprintf(w, " [%s]\n", EnvName(f.Name))
	})
}

// Strings is a flag that can be given several times. Its environment variable
// and each value may hold several, separated by commas. The first value given
// replaces the default.
type Strings struct {
	Values []string
	given  bool
}

// String implements flag.Value.
func (s *Strings) String() string { return strings.Join(s.Values, ",") }

// Set implements flag.Value.
func (s *Strings) Set(value string) error {
	if !s.given {
		s.Values, s.given = nil, true
	}
	for v := range strings.SplitSeq(value, ",") {
		if v == "" {
			return errors.New("an empty value")
		}
		s.Values = append(s.Values, v)
	}
	return nil
}
