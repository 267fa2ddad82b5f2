// The detector watches the reboot sentinels of its node and keeps one key on its
// own Node object: there while a sentinel is, absent while none is, and left as
// it is while that cannot be told. It watches no API and polls none.
//
//   - sentinel.go tells what a sentinel says, and which directories to watch for it;
//   - watch.go keeps fsnotify on those directories;
//   - node.go reads and writes the key and records Events;
//   - detector.go is the loop between them; what it decides is in shared/need.
package main
