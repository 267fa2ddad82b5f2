package images

import (
	"io/fs"
	"strings"
)

// workspace is the part of the project that images are built from.
type workspace struct{ fs.FS }

// ReadDir leaves out what no image needs: the history and the tools.
func (w workspace) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(w.FS, name)
	var kept []fs.DirEntry
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || name == "test" && e.Name() == "tools" || !e.IsDir() && !e.Type().IsRegular() {
			continue
		}
		kept = append(kept, e)
	}
	return kept, err
}
