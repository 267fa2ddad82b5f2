package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watcher keeps fsnotify on the directories of the sentinels. Where the system has
// no watch to give, it asks again at the next look.
type watcher struct {
	sentinels []string
	// events and errors are those of fs; they block for ever while there is none.
	events <-chan fsnotify.Event
	errors <-chan error

	fs *fsnotify.Watcher
}

// open starts fsnotify where it is not running.
func (w *watcher) open() error {
	if w.fs != nil {
		return nil
	}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("starting to watch files: %w", err)
	}
	w.fs, w.events, w.errors = fs, fs.Events, fs.Errors
	return nil
}

func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close()
	}
}

// arrange watches the directories as they are now. A watch stays with the
// directory that it was put on, so it is put again after every change. The error
// says which sentinel's own directory is not watched, and why.
func (w *watcher) arrange() error {
	if err := w.open(); err != nil {
		return err
	}
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
