package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// Root is the root of the repository: the nearest directory above the working
// directory, or else above this source file, that holds the tools' modules.
func Root() (string, error) {
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for {
			if _, err := os.Stat(filepath.Join(dir, toolsDir, "kubernetes", "go.mod")); err == nil {
				return dir, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", errors.New("finding the repository's root: no test/tools/kubernetes/go.mod above the working directory")
}
