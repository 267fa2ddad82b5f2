package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ganglion.dev/shared/need"
)

// maxPackages bounds the packages that are named as the reason.
const maxPackages = 10

// probe tells what a sentinel says now. The error says why it cannot be told: a
// directory that is not there or must not be read hides what is in it.
func probe(path string) (need.Verdict, error) {
	_, err := os.Stat(path)
	if err == nil {
		return need.Required, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return need.Unknown, fmt.Errorf("reading the sentinel: %w", err)
	}
	dir := filepath.Dir(path)
	if target := linkTarget(path); target != "" {
		// A link to nothing. Whether there is nothing can only be told where the
		// place that it leads to can be seen.
		dir = filepath.Dir(target)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return need.Unknown, fmt.Errorf("reading the directory of the sentinel %s: %w", path, err)
	case !info.IsDir():
		return need.Unknown, fmt.Errorf("reading the directory of the sentinel %s: %s is not a directory", path, dir)
	}
	return need.NotRequired, nil
}

// reason tells why the reboot is needed, as far as the host says: Debian and
// Ubuntu list the packages beside the sentinel, a line each.
func reason(path string) string {
	text, err := os.ReadFile(path + ".pkgs")
	if err != nil {
		return "sentinel " + filepath.Base(path)
	}
	packages := strings.Fields(string(text))
	slices.Sort(packages)
	packages = slices.Compact(packages)
	switch {
	case len(packages) == 0:
		return "sentinel " + filepath.Base(path)
	case len(packages) > maxPackages:
		return fmt.Sprintf("%s and %d more", strings.Join(packages[:maxPackages], ","), len(packages)-maxPackages)
	}
	return strings.Join(packages, ",")
}

// directories are those whose changes can change what the sentinel says: its own,
// that of the file it is a link to, and for each the nearest one above that is
// there, so that a directory that comes, or is replaced, is noticed.
func directories(path string) []string {
	places := []string{filepath.Dir(path)}
	if target := linkTarget(path); target != "" {
		places = append(places, filepath.Dir(target))
	}
	var dirs []string
	for _, dir := range places {
		dirs = append(dirs, dir)
		for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
			if info, err := os.Stat(above); err == nil && info.IsDir() || above == filepath.Dir(above) {
				dirs = append(dirs, above)
				break
			}
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// linkTarget is the path that a symbolic link leads to, empty where it is none.
func linkTarget(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(path), target)
	}
	return target
}
