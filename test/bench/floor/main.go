// Command floor is what the detector is measured against: the least program that
// watches a directory with fsnotify. For each file that appears there it prints a line.
package main

import (
	"fmt"
	"os"

	"github.com/fsnotify/fsnotify"
)

func main() {
	if err := watch(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func watch(dir string) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := w.Add(dir); err != nil {
		return err
	}
	fmt.Println("watching")
	for event := range w.Events {
		if event.Has(fsnotify.Create) {
			fmt.Println(event.Name)
		}
	}
	return nil
}
