package images

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"ganglion.dev/test/cluster"
)

// Packages of the tools that images are made with.
const (
	koPackage    = "github.com/google/ko"
	cranePackage = "github.com/google/go-containerregistry/cmd/crane"
)

// User is the numeric user of the base image, and so of every image.
const User = "65532"

// Registry is a registry that runs on loopback until Close. It has a base image that
// holds nothing, for two architectures.
type Registry struct {
	// Address is host and port.
	Address string

	ko, crane string
	process   *exec.Cmd
	cancel    context.CancelFunc
}

// Start starts a registry. Progress gets a line for each tool that has to be built first.
func Start(ctx context.Context, progress io.Writer) (r *Registry, err error) {
	r = &Registry{}
	if r.ko, err = cluster.BuildTool(ctx, koPackage, progress); err != nil {
		return nil, err
	}
	if r.crane, err = cluster.BuildTool(ctx, cranePackage, progress); err != nil {
		return nil, err
	}
	ctx, r.cancel = context.WithCancel(ctx)
	r.process = exec.CommandContext(ctx, r.crane, "registry", "serve", "--address", "127.0.0.1:0")
	said, err := r.process.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := r.process.Start(); err != nil {
		return nil, fmt.Errorf("starting the registry: %w", err)
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if _, port, is := strings.Cut(lines.Text(), "serving on port "); is {
			r.Address = "127.0.0.1:" + port
			break
		}
	}
	if r.Address == "" {
		return nil, errors.Join(errors.New("starting the registry: it does not say its port"), r.Close())
	}
	go io.Copy(io.Discard, said)
	if err := r.pushBase(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close ends the registry; what was pushed is gone.
func (r *Registry) Close() error {
	r.cancel()
	_ = r.process.Wait() // it was killed
	return nil
}

func (r *Registry) base() string { return r.Address + "/static" }

// pushBase makes the base image: no file, a user that is not root.
func (r *Registry) pushBase(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "ganglion-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// An archive of nothing is two blocks of zeros; see tar(5).
	layer := filepath.Join(dir, "layer.tar")
	if err := os.WriteFile(layer, make([]byte, 1024), 0o644); err != nil {
		return err
	}
	args := []string{"index", "append", "-t", r.base()}
	for _, arch := range []string{"amd64", "arm64"} {
		image := r.base() + ":" + arch
		if _, err := r.run(ctx, "append", "--oci-empty-base", "-f", layer, "-t", image); err != nil {
			return err
		}
		if _, err := r.run(ctx, "mutate", image, "--set-platform", "linux/"+arch, "--user", User+":"+User, "-t", image); err != nil {
			return err
		}
		args = append(args, "-m", image)
	}
	_, err = r.run(ctx, args...)
	return err
}

func (r *Registry) run(ctx context.Context, args ...string) ([]byte, error) {
	return output(exec.CommandContext(ctx, r.crane, args...))
}

// Build has ko build packages of the workspace that is at root, such as "./detector",
// and gives the reference of each image, with its digest, by the name of its program. No
// platform means those of ko.yaml.
func (r *Registry) Build(ctx context.Context, root, version, platform string, packages []string, env ...string) (map[string]string, error) {
	args := []string{"build", "--insecure-registry"}
	if platform != "" {
		args = append(args, "--platform="+platform)
	}
	cmd := exec.CommandContext(ctx, r.ko, append(args, packages...)...)
	cmd.Dir, cmd.Env = root, r.environment(version, env)
	out, err := output(cmd)
	if err != nil {
		return nil, err
	}
	references := map[string]string{}
	for reference := range strings.FieldsSeq(string(out)) {
		// ko puts a hash of the import path behind the name of the program.
		repository, _, _ := strings.Cut(path.Base(reference), "@")
		references[repository[:strings.LastIndex(repository, "-")]] = reference
	}
	return references, nil
}

// Resolve has ko build every image that a manifest names as ko://…, and puts the
// references in.
func (r *Registry) Resolve(ctx context.Context, root, version, manifest string) (string, error) {
	cmd := exec.CommandContext(ctx, r.ko, "resolve", "--insecure-registry", "--platform=linux/amd64", "-f", "-")
	cmd.Dir, cmd.Env, cmd.Stdin = root, r.environment(version, nil), strings.NewReader(manifest)
	out, err := output(cmd)
	return string(out), err
}

func (r *Registry) environment(version string, more []string) []string {
	env := append(os.Environ(), "KO_CONFIG_PATH=ko.yaml", "KO_DOCKER_REPO="+r.Address, "KO_DEFAULTBASEIMAGE="+r.base(), "VERSION="+version)
	return append(env, more...)
}

// Manifest reads the manifest or the index of an image.
func (r *Registry) Manifest(ctx context.Context, image string, into any) error {
	return r.read(ctx, into, "manifest", image)
}

// Config reads the configuration of an image, for one platform such as linux/amd64.
func (r *Registry) Config(ctx context.Context, image, platform string, into any) error {
	return r.read(ctx, into, "config", "--platform", platform, image)
}

// Export gives the files of an image as an archive.
func (r *Registry) Export(ctx context.Context, image, platform string) ([]byte, error) {
	return r.run(ctx, "export", "--platform", platform, image, "-")
}

func (r *Registry) read(ctx context.Context, into any, args ...string) error {
	text, err := r.run(ctx, args...)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("running %s %s: %w: %s", filepath.Base(cmd.Path), cmd.Args[1], err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}
