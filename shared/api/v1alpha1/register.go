package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the types here.
var SchemeGroupVersion = schema.GroupVersion{Group: "ganglion.dev", Version: "v1alpha1"}

// AddToScheme registers the types here.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&NodesMaintenanceWindow{}, &NodesMaintenanceWindowList{},
		&RebootProcedure{}, &RebootProcedureList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
