// Command schemas writes JSON schemas for kubeconform, offline: for each kind of Kubernetes' OpenAPI document, and for each
// CustomResourceDefinition in the files that follow it. An object with a field that the schema does not have is not valid.
//
//	schemas DIRECTORY swagger.json [crd.yaml ...]
//
// The schema of a kind is DIRECTORY/GROUP/KIND-VERSION.json, with KIND in lower case; for the core group GROUP is the version.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is a JSON object.
type object = map[string]any

const (
	references = "#/definitions/"
	objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
)

// Types that the document calls strings, although they are written as numbers, too.
var scalars = []string{
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString",
	"io.k8s.apimachinery.pkg.api.resource.Quantity",
}

func main() {
	if len(os.Args) < 3 {
		fail("usage: schemas DIRECTORY swagger.json [crd.yaml ...]")
	}
	definitions, err := read(os.Args[2])
	if err != nil {
		fail(err)
	}
	kinds := 0
	for name, definition := range definitions {
		for _, kind := range kindsOf(definition) {
			kinds++
			if err := write(kind, object{"$ref": references + name}, definitions); err != nil {
				fail(err)
			}
		}
	}
	for _, file := range os.Args[3:] {
		count, err := writeCustom(file, definitions)
		if err != nil {
			fail(err)
		}
		kinds += count
	}
	fmt.Fprintf(os.Stderr, "%d schemas in %s\n", kinds, os.Args[1])
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, "schemas:", why)
	os.Exit(1)
}

// kind is a group, a version and a kind.
type kind struct{ Group, Version, Kind string }

// read returns the definitions of an OpenAPI document, strict and without descriptions.
func read(file string) (object, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var document struct{ Definitions object }
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, definition := range document.Definitions {
		restrict(definition)
	}
	for _, name := range scalars {
		document.Definitions[name] = object{"type": []any{"string", "number"}}
	}
	return document.Definitions, nil
}

// restrict refuses unknown fields in a schema and in all that it contains, and drops descriptions.
func restrict(schema any) {
	fields, isObject := schema.(object)
	if !isObject {
		return
	}
	delete(fields, "description")
	properties, _ := fields["properties"].(object)
	_, isOpen := fields["additionalProperties"]
	if len(properties) > 0 && !isOpen && fields["x-kubernetes-preserve-unknown-fields"] != true {
		fields["additionalProperties"] = false
	}
	for _, property := range properties {
		restrict(property)
	}
	restrict(fields["items"])
	restrict(fields["additionalProperties"])
}

// kindsOf returns what a definition is the schema of, if it is one of whole objects.
func kindsOf(definition any) []kind {
	fields, _ := definition.(object)
	text, err := json.Marshal(fields["x-kubernetes-group-version-kind"])
	var found []kind
	if err != nil || json.Unmarshal(text, &found) != nil {
		return nil
	}
	return found
}

// write writes the schema of a kind, with the definitions that it refers to.
func write(of kind, schema object, definitions object) error {
	needed := object{}
	collect(schema, definitions, needed)
	whole := object{"definitions": needed, "allOf": []any{schema}}
	text, err := json.Marshal(whole)
	if err != nil {
		return err
	}
	group := of.Group
	if group == "" {
		group = of.Version
	}
	dir := filepath.Join(os.Args[1], group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, strings.ToLower(of.Kind)+"-"+of.Version+".json"), text, 0o644)
}

// collect adds to needed what a schema refers to, directly or not.
func collect(schema any, definitions, needed object) {
	switch value := schema.(type) {
	case object:
		if reference, ok := value["$ref"].(string); ok {
			name := strings.TrimPrefix(reference, references)
			if _, known := needed[name]; !known {
				needed[name] = definitions[name]
				collect(definitions[name], definitions, needed)
			}
		}
		for _, inner := range value {
			collect(inner, definitions, needed)
		}
	case []any:
		for _, inner := range value {
			collect(inner, definitions, needed)
		}
	}
}

// writeCustom writes the schemas of the versions of a CustomResourceDefinition, and says how many there are.
func writeCustom(file string, definitions object) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var definition struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema object }
			}
		}
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	spec := definition.Spec
	for _, version := range spec.Versions {
		schema := version.Schema.OpenAPIV3Schema
		properties, hasProperties := schema["properties"].(object)
		if !hasProperties {
			return 0, fmt.Errorf("%s: version %s has no schema", file, version.Name)
		}
		restrict(schema)
		properties["metadata"] = object{"$ref": references + objectMeta}
		if err := write(kind{spec.Group, version.Name, spec.Names.Kind}, schema, definitions); err != nil {
			return 0, err
		}
	}
	if len(spec.Versions) == 0 {
		return 0, fmt.Errorf("%s: no CustomResourceDefinition", file)
	}
	return len(spec.Versions), nil
}
