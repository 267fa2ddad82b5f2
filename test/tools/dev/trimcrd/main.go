// Command trimcrd takes the descriptions out of one property of a CRD, and of all
// below it: those of a whole pod template make a CRD too large for the
// annotation in which kubectl apply keeps what it applied.
//
//	trimcrd FILE PROPERTY
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: trimcrd FILE PROPERTY")
		os.Exit(2)
	}
	if err := trim(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "trimcrd:", err)
		os.Exit(1)
	}
}

func trim(file, property string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	if found := visit(crd, property); !found {
		return fmt.Errorf("%s has no property %s", file, property)
	}
	text, err = yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("rendering %s: %w", file, err)
	}
	return os.WriteFile(file, append([]byte("---\n"), text...), 0o644)
}

// visit looks for the property and strips what is below it.
func visit(value any, property string) bool {
	found := false
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			if schema, is := child.(map[string]any); is && key == property && schema["properties"] != nil {
				strip(schema["properties"])
				found = true
				continue
			}
			found = visit(child, property) || found
		}
	case []any:
		for _, child := range v {
			found = visit(child, property) || found
		}
	}
	return found
}

// strip drops the descriptions of schemas, and leaves a property of that name.
func strip(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, is := v["description"].(string); is {
			delete(v, "description")
		}
		for _, child := range v {
			strip(child)
		}
	case []any:
		for _, child := range v {
			strip(child)
		}
	}
}
