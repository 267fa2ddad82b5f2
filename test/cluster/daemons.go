package cluster

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// daemons are the packages of Ganglion's programs.
var daemons = []string{
	"ganglion.dev/detector",
	"ganglion.dev/locker",
	"ganglion.dev/drainer",
	"ganglion.dev/rebooter/cmd/dispatcher",
	"ganglion.dev/rebooter/cmd/rebooter",
}

// BuildDaemons builds Ganglion's programs from the workspace and gives their paths by
// name, such as "locker". With race, the race detector is in them, where this
// machine has the C compiler that it takes.
func (c *Cluster) BuildDaemons(ctx context.Context, race bool) (map[string]string, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	dir := c.path("daemons")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	args := []string{"build", "-buildvcs=false", "-o", dir + string(filepath.Separator)}
	env := []string{"GOWORK=" + filepath.Join(root, "go.work"), "CGO_ENABLED=0"} // whatever the caller's are
	if race && canRace(ctx, root) {
		args, env[1] = append(args, "-race"), "CGO_ENABLED=1"
	}
	if _, err := goCommand(ctx, root, env, append(args, daemons...)...); err != nil {
		return nil, fmt.Errorf("building the daemons: %w", err)
	}
	paths := map[string]string{}
	for _, d := range daemons {
		name := path.Base(d)
		paths[name] = filepath.Join(dir, name)
	}
	return paths, nil
}

// canRace tells whether there is a C compiler: without one, go turns cgo off.
func canRace(ctx context.Context, root string) bool {
	enabled, err := goCommand(ctx, root, nil, "env", "CGO_ENABLED")
	return err == nil && enabled == "1"
}
