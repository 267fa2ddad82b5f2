package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ganglion.dev/test/cluster"
)

const version = "v1.2.3-test"

var packages = []string{"./detector", "./locker", "./drainer", "./rebooter/cmd/dispatcher", "./rebooter/cmd/rebooter"}

// index is what is read of an image's index.
type index struct {
	Manifests []struct {
		Digest   string
		Platform struct{ OS, Architecture string }
	}
}

func start(t *testing.T) (*Registry, string) {
	t.Helper()
	root, err := cluster.Root()
	must(t, err)
	r, err := Start(t.Context(), os.Stderr)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r, root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// digests of an image by architecture.
func (r *Registry) digests(t *testing.T, image string) map[string]string {
	t.Helper()
	var i index
	must(t, r.Manifest(t.Context(), image, &i))
	byArch := map[string]string{}
	for _, m := range i.Manifests {
		byArch[m.Platform.Architecture] = m.Digest
	}
	return byArch
}

func TestImagesAreMinimalForTwoArchitecturesNotRootVersionedAndHaveAnSBOM(t *testing.T) {
	r, root := start(t)
	references, err := r.Build(t.Context(), root, version, "", packages)
	must(t, err)
	if len(references) != len(packages) {
		t.Fatalf("%d images of %d packages: %v", len(references), len(packages), references)
	}
	for _, pkg := range packages {
		name := path.Base(pkg)
		reference := references[name]
		digests := r.digests(t, reference)
		for _, arch := range []string{"amd64", "arm64"} {
			if digests[arch] == "" {
				t.Errorf("%s: no image for %s", name, arch)
				continue
			}
			var config struct {
				Architecture string
				Config       struct {
					User       string
					Entrypoint []string
				}
			}
			must(t, r.Config(t.Context(), reference, "linux/"+arch, &config))
			if config.Architecture != arch || config.Config.User != User+":"+User || !slices.Equal(config.Config.Entrypoint, []string{"/ko-app/" + name}) {
				t.Errorf("%s for %s: %+v", name, arch, config)
			}
		}
		repository, digest, _ := strings.Cut(reference, "@")
		var sbom struct {
			Layers []struct{ MediaType string }
		}
		must(t, r.Manifest(t.Context(), repository+":"+strings.Replace(digest, ":", "-", 1)+".sbom", &sbom))
		if len(sbom.Layers) != 1 || !strings.Contains(sbom.Layers[0].MediaType, "spdx") {
			t.Errorf("%s: the SBOM is %+v", name, sbom)
		}
		files := r.files(t, reference, "linux/amd64")
		for file, text := range files {
			if strings.HasPrefix(file, "ko-app/") != (text != nil) {
				t.Errorf("%s holds %s", name, file)
			}
		}
		if out := say(t, files["ko-app/"+name]); strings.TrimSpace(out) != name+" "+version {
			t.Errorf("%s --version says %q", name, out)
		}
	}
}

// files of an image, and what is in them; nil for what is no file.
func (r *Registry) files(t *testing.T, reference, platform string) map[string][]byte {
	t.Helper()
	archive, err := r.Export(t.Context(), reference, platform)
	must(t, err)
	files := map[string][]byte{}
	for entries := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		name := strings.TrimPrefix(header.Name, "/")
		if header.Typeflag != tar.TypeReg {
			files[name] = nil
			continue
		}
		files[name], err = io.ReadAll(entries)
		must(t, err)
	}
}

// say runs a program with --version.
func say(t *testing.T, program []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(file, program, 0o755))
	out, err := exec.CommandContext(t.Context(), file, "--version").CombinedOutput()
	if err != nil {
		t.Errorf("--version: %v", err)
	}
	return string(out)
}

// Another folder, another cache, another time: the same image.
func TestImagesAreReproducible(t *testing.T) {
	r, root := start(t)
	smallest := packages[4:] // it is compiled from nothing
	first, err := r.Build(t.Context(), root, version, "linux/amd64", smallest)
	must(t, err)
	elsewhere := t.TempDir()
	must(t, os.CopyFS(elsewhere, workspace{os.DirFS(root)}))
	second, err := r.Build(t.Context(), elsewhere, version, "linux/amd64", smallest, "GOCACHE="+t.TempDir())
	must(t, err)
	if first["rebooter"] == "" || !maps.Equal(first, second) {
		t.Errorf("built twice:\n%s\n%s", first, second)
	}
}
