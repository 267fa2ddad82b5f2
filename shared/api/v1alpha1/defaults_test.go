package v1alpha1

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// schemaOf reads the schema of a CRD's spec.
func schemaOf(t *testing.T, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/base/crds/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties map[string]map[string]any
					} `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
}

// defaults fills in what the schema says, as the API server does: a default that is an
// object is filled in itself.
func defaults(schema map[string]any, value map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		property := p.(map[string]any)
		if byDefault, is := property["default"]; is && value[name] == nil {
			value[name] = byDefault
		}
		if child, is := value[name].(map[string]any); is {
			defaults(property, child)
		}
	}
}

func TestTheDefaultsInGoAreThoseOfTheCRD(t *testing.T) {
	spec := map[string]any{}
	defaults(schemaOf(t, "ganglion.dev_nodesmaintenancewindows.yaml"), spec)
	text, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	var byCRD, byGo NodesMaintenanceWindow
	if err := json.Unmarshal(text, &byCRD); err != nil {
		t.Fatal(err)
	}
	byGo.Default()
	if diff := cmp.Diff(byCRD, byGo); diff != "" {
		t.Errorf("CRD -, Go +:\n%s", diff)
	}
	byGo.Name = "w"
	if errs := byGo.Validate(); len(errs) > 0 {
		t.Errorf("the defaults are invalid: %v", errs)
	}
	if fields := byGo.NotImplemented(); len(fields) > 0 {
		t.Errorf("the defaults are not implemented: %v", fields)
	}

	procedure := map[string]any{}
	defaults(schemaOf(t, "ganglion.dev_rebootprocedures.yaml"), procedure)
	var p RebootProcedure
	p.Default()
	if procedure["placement"] != string(p.Spec.Placement) || procedure["completion"] != string(p.Spec.Completion) {
		t.Errorf("CRD %v, Go %v", procedure, p.Spec)
	}
}

func parse(t *testing.T, spec string) *NodesMaintenanceWindow {
	t.Helper()
	w := &NodesMaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
	if err := yaml.UnmarshalStrict([]byte("spec: {"+spec+"}"), w); err != nil {
		t.Fatal(err)
	}
	w.Default()
	return w
}

func TestEveryFieldThatIsNotBuiltYetIsNamed(t *testing.T) {
	for spec, want := range map[string]string{
		`schedules: [{cron: "0 22 * * *", duration: 1h}]`:            "spec.schedules",
		`freezes: [{start: "2026-12-20T00:00:00Z", duration: 336h}]`: "spec.freezes",
		`latestStart: 30m`:                                       "spec.latestStart",
		`overrun: Finish`:                                        "spec.overrun",
		`serialization: {topologyKey: zone}`:                     "spec.serialization.topologyKey",
		`serialization: {maxFailures: 3}`:                        "spec.serialization.maxFailures",
		`blockers: {prometheus: [{url: "http://p", query: up}]}`: "spec.blockers.prometheus",
		`blockers: {pods: [{selector: {}}]}`:                     "spec.blockers.pods",
		`blockers: {nodes: [{selector: {}}]}`:                    "spec.blockers.nodes",
		`gates: {beforeDrain: [a]}`:                              "spec.gates.beforeDrain",
		`gates: {beforeReboot: [a]}`:                             "spec.gates.beforeReboot",
		`gates: {afterReboot: [a]}`:                              "spec.gates.afterReboot",
		`drain: {onTimeout: Delete}`:                             "spec.drain.onTimeout",
		`drain: {onTimeout: Proceed}`:                            "spec.drain.onTimeout",
		`drain: {loadBalancerDelay: 10s}`:                        "spec.drain.loadBalancerDelay",
		`reboot: {onTimeout: Release}`:                           "spec.reboot.onTimeout",
	} {
		err := Usable(parse(t, spec))
		unusable, is := err.(*Unusable)
		if !is || unusable.Reason != "NotImplemented" || !strings.Contains(unusable.Message, want) {
			t.Errorf("%s: got %v, want NotImplemented and %s", spec, err, want)
		}
	}
}

func TestWhatIsBuiltCanBeUsed(t *testing.T) {
	w := parse(t, `nodeSelector: {matchLabels: {pool: a}}, priority: 5, suspended: true, minRebootInterval: 2h,
		serialization: {maxConcurrent: "50%", ignoreUnavailable: true, settle: 1m, order: Name},
		drain: {skip: true, timeout: 1h, preflight: false, gracePeriodSeconds: 30, podSelector: {}, skipWaitForDeleteTimeout: 1m, deleteEmptyDirData: false},
		reboot: {procedure: mine, timeout: 1h}`)
	if err := Usable(w); err != nil {
		t.Error(err)
	}
}

func TestAnInvalidWindowNamesTheField(t *testing.T) {
	for spec, want := range map[string]string{
		`nodeSelector: {matchExpressions: [{key: a, operator: Near}]}`:            "spec.nodeSelector",
		`serialization: {maxConcurrent: -1}`:                                      "spec.serialization.maxConcurrent",
		`serialization: {maxConcurrent: "0%"}`:                                    "spec.serialization.maxConcurrent",
		`serialization: {maxConcurrent: "101%"}`:                                  "spec.serialization.maxConcurrent",
		`serialization: {topologyKey: "a b"}`:                                     "spec.serialization.topologyKey",
		`serialization: {settle: -1s}`:                                            "spec.serialization.settle",
		`serialization: {order: Random}`:                                          "spec.serialization.order",
		`serialization: {maxFailures: -1}`:                                        "spec.serialization.maxFailures",
		`minRebootInterval: -1s`:                                                  "spec.minRebootInterval",
		`latestStart: -1s`:                                                        "spec.latestStart",
		`overrun: Maybe`:                                                          "spec.overrun",
		`schedules: [{cron: "0 22 * *", duration: 1h}]`:                           "spec.schedules[0].cron",
		`schedules: [{cron: "0 22 * * *", duration: 169h}]`:                       "spec.schedules[0].duration",
		`schedules: [{cron: "0 22 * * *", duration: 1h, timeZone: Mars/Olympus}]`: "spec.schedules[0].timeZone",
		`schedules: [{days: [fri], startTime: "22:00"}]`:                          "spec.schedules[0].endTime",
		`schedules: [{duration: 1h}]`:                                             "spec.schedules[0]",
		`freezes: [{start: "2026-12-20T00:00:00Z"}]`:                              "spec.freezes[0].duration",
		`blockers: {prometheus: [{url: "ftp://p", query: up}]}`:                   "spec.blockers.prometheus[0].url",
		`blockers: {prometheus: [{url: "http://p", onlyAlerts: "("}]}`:            "spec.blockers.prometheus[0].onlyAlerts",
		`blockers: {pods: [{selector: {matchLabels: {"a b": c}}}]}`:               "spec.blockers.pods[0].selector",
		`gates: {beforeDrain: [a, a]}`:                                            "spec.gates.beforeDrain[1]",
		`gates: {afterReboot: ["a/b"]}`:                                           "spec.gates.afterReboot[0]",
		`drain: {timeout: -1s}`:                                                   "spec.drain.timeout",
		`drain: {gracePeriodSeconds: -2}`:                                         "spec.drain.gracePeriodSeconds",
		`drain: {podSelector: {matchLabels: {"a b": c}}}`:                         "spec.drain.podSelector",
		`reboot: {procedure: "a b"}`:                                              "spec.reboot.procedure",
		`reboot: {timeout: -1s}`:                                                  "spec.reboot.timeout",
	} {
		unusable, is := Usable(parse(t, spec)).(*Unusable)
		if !is || unusable.Reason != "Invalid" || !strings.Contains(unusable.Message, want+":") && !strings.Contains(unusable.Message, want+".") {
			t.Errorf("%s: got %v, want Invalid and %s", spec, unusable, want)
		}
	}
	for _, name := range []string{"", "drain", "a.b", strings.Repeat("a", 41), "A"} {
		w := parse(t, "")
		w.Name = name
		if err := Usable(w); err == nil || !strings.Contains(err.Error(), "metadata.name") {
			t.Errorf("name %q: %v", name, err)
		}
	}
}
