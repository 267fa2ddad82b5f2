package cases

import (
	"strings"
	"testing"
)

func TestAnInvalidObjectIsRefusedByTheAPIServerWithTheFieldsName(t *testing.T) {
	e := start(t, 0, nil)
	for name, c := range map[string]struct{ object, field string }{
		"cap of 0":                     {window("w", "serialization: {maxConcurrent: 0}"), "maxConcurrent"},
		"cap of 0%":                    {window("w", `serialization: {maxConcurrent: "0%"}`), "maxConcurrent"},
		"cap of 101%":                  {window("w", `serialization: {maxConcurrent: "101%"}`), "maxConcurrent"},
		"cap in words":                 {window("w", "serialization: {maxConcurrent: two}"), "maxConcurrent"},
		"cap that is negative":         {window("w", "serialization: {maxConcurrent: -1}"), "maxConcurrent"},
		"order":                        {window("w", "serialization: {order: Random}"), "order"},
		"settle":                       {window("w", "serialization: {settle: -1s}"), "settle"},
		"drain without an end":         {window("w", "drain: {timeout: 0s}"), "drain.timeout"},
		"a duration in words":          {window("w", "drain: {timeout: soon}"), "drain.timeout"},
		"what to do on timeout":        {window("w", "drain: {onTimeout: Pray}"), "onTimeout"},
		"grace":                        {window("w", "drain: {gracePeriodSeconds: -2}"), "gracePeriodSeconds"},
		"reboot without an end":        {window("w", "reboot: {timeout: 0s}"), "reboot.timeout"},
		"no procedure":                 {window("w", `reboot: {procedure: ""}`), "procedure"},
		"two forms of schedule":        {window("w", `schedules: [{cron: "0 22 * * *", start: "2026-12-24T18:00:00Z", duration: 4h}]`), "cron, start, days"},
		"no form of schedule":          {window("w", "schedules: [{duration: 4h}]"), "cron, start, days"},
		"a schedule without its end":   {window("w", `schedules: [{cron: "0 22 * * *"}]`), "duration"},
		"a schedule that is too short": {window("w", `schedules: [{cron: "0 22 * * *", duration: 30s}]`), "duration"},
		"cron of six fields":           {window("w", `schedules: [{cron: "0 0 22 * * *", duration: 1h}]`), "cron"},
		"a day":                        {window("w", `schedules: [{days: [fri, xyz], startTime: "22:00", endTime: "02:00"}]`), "days"},
		"a clock":                      {window("w", `schedules: [{days: [fri], startTime: "24:00", endTime: "02:00"}]`), "startTime"},
		"days without an end":          {window("w", `schedules: [{days: [fri], startTime: "22:00"}]`), "endTime"},
		"a query and alerts":           {window("w", `blockers: {prometheus: [{url: "http://p:9090", query: up, onlyAlerts: x}]}`), "query"},
		"a URL":                        {window("w", `blockers: {prometheus: [{url: "p:9090", query: up}]}`), "url"},
		"a gate":                       {window("w", `gates: {beforeDrain: ["a/b"]}`), "beforeDrain"},
		"a name that is too long":      {window(strings.Repeat("a", 41), ""), "metadata.name"},
		"a name with a dot":            {window("a.b", ""), "metadata.name"},
		"the name of claims":           {window("drain", ""), "metadata.name"},
		"a priority in words":          {window("w", "priority: high"), "priority"},
		"no containers":                {procedure("containers: []"), "containers"},
		"a restart policy":             {procedure("restartPolicy: OnFailure, containers: [{name: a, image: a}]"), "restartPolicy"},
		"a field that is misspelt":     {procedure("hostPid: true, containers: [{name: a, image: a}]"), "hostPid"},
		"a placement":                  {strings.Replace(procedure("containers: [{name: a, image: a}]"), "Node", "Moon", 1), "placement"},
	} {
		t.Run(name, func(t *testing.T) {
			err := e.Cluster.ApplyYAML(e.ctx, c.object)
			if err == nil {
				t.Fatal("it is accepted")
			}
			if !strings.Contains(err.Error(), c.field) {
				t.Errorf("the message does not name %s: %v", c.field, err)
			}
		})
	}
}

func window(name, spec string) string {
	return "apiVersion: ganglion.dev/v1alpha1\nkind: NodesMaintenanceWindow\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n"
}

func procedure(pod string) string {
	return "apiVersion: ganglion.dev/v1alpha1\nkind: RebootProcedure\nmetadata: {name: p, namespace: ganglion-nodes}\n" +
		"spec: {placement: Node, jobTemplate: {spec: {template: {spec: {" + pod + "}}}}}\n"
}
