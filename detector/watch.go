package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watcher keeps fsnotify on the directories of the sentinels.
type watcher struct {
	fs        *fsnotify.Watcher
	sentinels []string
}

func newWatcher(sentinels []string) (*watcher, error) {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("starting to watch files: %w", err)
	}
	return &watcher{fs, sentinels}, nil
}

// arrange watches the directories as they are now. A watch stays with the
// directory that it was put on, so it is put again after every change. The error
// says which sentinel's own directory is not watched, and why.
func (w *watcher) arrange() error {
	var errs []error
	wanted := map[string]bool{}
	for _, sentinel := range w.sentinels {
		for _, dir := range directories(sentinel) {
			wanted[dir] = true
			if err := w.fs.Add(dir); err != nil && dir == filepath.Dir(sentinel) {
				errs = append(errs, fmt.Errorf("watching %s: %w", dir, err))
			}
		}
	}
	for _, dir := range w.fs.WatchList() {
		if !wanted[dir] {
			_ = w.fs.Remove(dir) // it may have gone by itself
		}
	}
	return errors.Join(errs...)
}

// matters tells whether an event can change what a sentinel says. The directories
// are busy ones: /run has many files.
func (w *watcher) matters(event fsnotify.Event) bool {
	if event.Op == fsnotify.Chmod && !w.isDirectory(event.Name) {
		return false
	}
	return slices.ContainsFunc(w.sentinels, func(sentinel string) bool {
		return event.Name == sentinel || event.Name == sentinel+".pkgs" ||
			event.Name == linkTarget(sentinel) || w.isDirectory(event.Name)
	})
}

// isDirectory tells whether the name is a sentinel's directory or one above it.
func (w *watcher) isDirectory(name string) bool {
	return slices.ContainsFunc(w.sentinels, func(sentinel string) bool {
		for dir := filepath.Dir(sentinel); ; dir = filepath.Dir(dir) {
			if dir == name {
				return true
			}
			if dir == filepath.Dir(dir) {
				return false
			}
		}
	})
}
