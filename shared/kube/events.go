package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// The reasons of Events, on Nodes and on windows.
const (
	EventSlotGranted   = "SlotGranted"
	EventSlotRevoked   = "SlotRevoked"
	EventSlotReleased  = "SlotReleased"
	EventRebootWaiting = "RebootWaiting"
	EventRebootLoop    = "RebootLoop"
	EventRebootStalled = "RebootStalled"
	EventCordoned      = "Cordoned"
	EventDrainBlocked  = "DrainBlocked"
	EventDrained       = "Drained"
	EventDrainFailed   = "DrainFailed"
	EventRestored      = "Restored"
	EventRebooting     = "Rebooting"
	EventRebooted      = "Rebooted"
	EventRebootFailed  = "RebootFailed"
)

// NewRecorder makes a recorder of Events until the context is done. Events that
// cannot be written are dropped: nothing depends on them.
func NewRecorder(ctx context.Context, component string, events typedcorev1.EventsGetter) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: events.Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "ganglion-" + component})
}
