package system

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"ganglion.dev/test/cluster"
)

// ko ignores in silence what it does not know, so a binary that ko.yaml does not list
// is built without its flags.
func TestEveryImageOfDeployIsListedInKoYAML(t *testing.T) {
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "ko.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var ko struct {
		Builds []struct {
			ID, Dir, Main string
			Flags         []string
		}
	}
	if err := yaml.UnmarshalStrict(text, &struct {
		DefaultPlatforms, DefaultEnv, DefaultFlags, DefaultLdflags []string
		Builds                                                     *[]struct {
			ID, Dir, Main string
			Flags         []string
		}
	}{Builds: &ko.Builds}); err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, b := range ko.Builds {
		dir := filepath.Join(root, b.Dir, b.Main)
		if _, err := os.Stat(filepath.Join(dir, "main.go")); err != nil {
			t.Errorf("build %s: %v", b.ID, err)
		}
		listed = append(listed, "ganglion.dev/"+strings.TrimPrefix(filepath.Join(b.Dir, b.Main), "./"))
	}
	used := map[string]bool{}
	err = filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range regexp.MustCompile(`image: *"?ko://([^\s"]+)`).FindAllSubmatch(text, -1) {
			used[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(used) != 5 {
		t.Errorf("deploy uses %d images, and there are five binaries", len(used))
	}
	for image := range used {
		if !slices.Contains(listed, image) {
			t.Errorf("ko.yaml does not list %s", image)
		}
	}
}
