package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// memory is what a process takes, in MiB: resident, the anonymous part of it, and the
// most that was ever resident.
type memory struct{ resident, anonymous, most float64 }

func memoryOf(pid int) (memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	field := func(name string) float64 {
		for line := range strings.Lines(string(text)) {
			if rest, is := strings.CutPrefix(line, name+":"); is {
				kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				return kib / 1024
			}
		}
		return 0
	}
	return memory{field("VmRSS"), field("RssAnon"), field("VmHWM")}, nil
}

// cpuOf is the time that all threads of a process have run so far.
func cpuOf(pid int) (time.Duration, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, task := range tasks {
		// The first number is the time on a CPU in nanoseconds; see
		// Documentation/scheduler/sched-stats.rst of the kernel.
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if err != nil {
			return 0, err
		}
		ran, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ran)
	}
	return sum, nil
}
