package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Request is one request that the API server answered, or a watch that it began to serve.
type Request struct {
	User        string // of a service account: system:serviceaccount:<namespace>:<name>
	UserAgent   string
	Verb        string // get, list, watch, create, update, patch, delete, …
	Group       string
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	Code        int
	Time        time.Time
}

// auditEvent is what we read of audit.k8s.io/v1 Event.
type auditEvent struct {
	AuditID   string `json:"auditID"`
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
}

// Requests gives every request so far, in the order in which they were answered, from
// the audit log. A watch counts from its beginning.
func (c *Cluster) Requests() ([]Request, error) {
	f, err := os.Open(c.path("audit.log"))
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer f.Close()
	var requests []Request
	seen := map[string]bool{} // a watch is logged at its beginning and at its end
	lines := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, nil // a last line without an end is still being written
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if seen[e.AuditID] {
			continue
		}
		seen[e.AuditID] = true
		requests = append(requests, Request{
			User: e.User.Username, UserAgent: e.UserAgent, Verb: e.Verb,
			Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
			Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
			Code: e.ResponseStatus.Code, Time: e.RequestReceivedTimestamp,
		})
	}
}
