package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/google/go-cmp/cmp"

	"ganglion.dev/test/cluster"
)

// everywhere is where a right of a ClusterRole holds.
const everywhere = "everywhere"

// A right that is added to a role, and not to the table in deploy/README.md, fails here.
func TestTheRightsOfEachDaemonAreThoseOfTheTableInTheREADMEOfDeploy(t *testing.T) {
	p := prepare(t)
	root, err := cluster.Root()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "deploy", "README.md"))
	must(t, err)
	documented := rightsTable(string(text))
	plain, err := p.Token(t.Context(), metav1.NamespaceDefault, "default", nil)
	must(t, err)
	common := rules(t, p.as(t, plain), "kube-public")

	var namespaces []string
	list, err := p.Admin().CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, n := range list.Items {
		if n.Status.Phase == corev1.NamespaceActive {
			namespaces = append(namespaces, n.Name)
		}
	}
	for daemon, token := range p.tokens {
		k := p.as(t, token)
		global := without(rules(t, k, "kube-public"), common)
		rights := map[string][]string{everywhere: global}
		for _, namespace := range namespaces {
			if local := without(rules(t, k, namespace), slices.Concat(common, global)); len(local) > 0 {
				rights[namespace] = local
			}
		}
		if diff := cmp.Diff(documented[daemon], rights); diff != "" {
			t.Errorf("%s: the table in deploy/README.md (-) and the API server (+) differ:\n%s", daemon, diff)
		}
	}
}

// rights gives each right of a table by daemon and place, as "verb resource".
func rightsTable(text string) map[string]map[string][]string {
	rights := map[string]map[string][]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		daemon, where := cells[0], cells[1]
		if rights[daemon] == nil {
			rights[daemon] = map[string][]string{}
		}
		for verb := range strings.FieldsSeq(cells[3]) {
			rights[daemon][where] = append(rights[daemon][where], verb+" "+cells[2])
		}
		slices.Sort(rights[daemon][where])
	}
	return rights
}

// rules are the rights that the API server says somebody has in a namespace.
func rules(t *testing.T, k kubernetes.Interface, namespace string) []string {
	t.Helper()
	review, err := k.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	must(t, err)
	var all []string
	for _, r := range review.Status.ResourceRules {
		for _, verb := range r.Verbs {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					name, sub, _ := strings.Cut(resource, "/")
					if group != "" {
						name += "." + group
					}
					if sub != "" {
						name += "/" + sub
					}
					if len(r.ResourceNames) > 0 {
						name += fmt.Sprint(r.ResourceNames)
					}
					all = append(all, verb+" "+name)
				}
			}
		}
	}
	for _, r := range review.Status.NonResourceRules {
		for _, verb := range r.Verbs {
			for _, url := range r.NonResourceURLs {
				all = append(all, verb+" "+url)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}
