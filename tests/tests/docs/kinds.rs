//! The reference pages of kinds: rendered from the schemas that the API server publishes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use serde_json::{Map, Value};

use super::root;

/// The schemas as they are published, which tests of `repot-api` hold.
const SCHEMAS: &str = "apiserver/api/tests/goldens";
const PAGES: &str = "docs/reference/api";
const WIDTH: usize = 116;
/// Each kind, its resource, group and scope of use.
const KINDS: &[(&str, &str, &str)] = &[
    ("ShootState", "shootstates", "core.gardener.cloud"),
    ("HostedEtcd", "hostedetcds", "migration.gardener.cloud"),
    ("EtcdBackup", "etcdbackups", "migration.gardener.cloud"),
    ("EtcdRestore", "etcdrestores", "migration.gardener.cloud"),
    ("EtcdMigration", "etcdmigrations", "migration.gardener.cloud"),
    ("ControlPlaneMigration", "controlplanemigrations", "migration.gardener.cloud"),
    ("ZoneIsolation", "zoneisolations", "migration.gardener.cloud"),
];

#[test]
fn pages_list_the_fields_of_each_kind() {
    let mut index = "# Kinds\n\nFor authors of objects. These pages are generated from the published schemas. \
                     [Fields of Etcd](../etcd-fields.md) has\nthe CRD.\n\n| kind | resource | group |\n|---|---|---|\n"
        .to_owned();
    for (kind, resource, group) in KINDS {
        let name = kind.to_lowercase();
        let _ = writeln!(index, "| [{kind}]({name}.md) | `{resource}` | `{group}/v1alpha1` |");
        golden(&name, &page(kind, resource, group));
    }
    golden("index", &index);
}

#[test]
fn every_published_kind_has_a_page() {
    let files = fs::read_dir(root().join(SCHEMAS)).expect("schemas").map(|entry| entry.expect("an entry"));
    let names = files.map(|entry| entry.file_name().into_string().expect("UTF-8"));
    let resources = names.filter_map(|name| name.strip_suffix(".openapi.json").map(str::to_owned));
    let mut published: Vec<String> = resources.collect();
    published.sort();
    let mut known: Vec<&str> = KINDS.iter().map(|(_, resource, _)| *resource).collect();
    known.sort_unstable();
    assert_eq!(published, known);
}

fn golden(name: &str, rendered: &str) {
    let path = format!("{PAGES}/{name}.md");
    let file = root().join(&path);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::create_dir_all(root().join(PAGES)).expect("the directory");
        fs::write(&file, rendered).expect("the page");
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    assert!(stored == rendered, "{path} is not what the schemas say; UPDATE_GOLDENS=1 renews it");
}

fn page(kind: &str, resource: &str, group: &str) -> String {
    let text =
        fs::read_to_string(root().join(SCHEMAS).join(format!("{resource}.openapi.json"))).expect("a schema");
    let schemas: BTreeMap<String, Value> = serde_json::from_str(&text).expect("JSON");
    let suffix = format!(".{kind}");
    let (_, schema) =
        schemas.iter().find(|(name, _)| name.ends_with(&suffix)).expect("the schema of the kind");
    let mut page =
        format!("# {kind}\n\nFor authors of {kind} objects. Generated from the published schema.\n\n");
    let _ = writeln!(page, "```yaml\napiVersion: {group}/v1alpha1\nkind: {kind}\n```\n");
    lines(&mut page, &escape(text_of(schema, "description")), "", "");
    for part in ["spec", "status"] {
        if let Some(field) = schema["properties"].get(part) {
            let _ = writeln!(page, "\n## {part}\n");
            lines(&mut page, &escape(text_of(field, "description")), "", "");
            page.push('\n');
            fields(&mut page, &schemas, resolve(&schemas, field), part);
        }
    }
    page
}

fn text_of<'a>(schema: &'a Value, field: &str) -> &'a str {
    schema[field].as_str().unwrap_or_default()
}

/// The schema itself, where this refers to one of ours.
fn resolve<'a>(schemas: &'a BTreeMap<String, Value>, schema: &'a Value) -> &'a Value {
    reference(schema).and_then(|name| schemas.get(name)).unwrap_or(schema)
}

fn reference(schema: &Value) -> Option<&str> {
    let direct = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    direct?.strip_prefix("#/components/schemas/")
}

/// Fields of a type that stands on the page already are not listed again, where there are many of them.
const MANY: usize = 8;

fn fields(page: &mut String, schemas: &BTreeMap<String, Value>, schema: &Value, path: &str) {
    fields_but(page, schemas, (schema, path), &mut BTreeMap::new());
}

fn fields_but(
    page: &mut String,
    schemas: &BTreeMap<String, Value>,
    (schema, path): (&Value, &str),
    known: &mut BTreeMap<String, String>,
) {
    let empty = Map::new();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().unwrap_or(&empty) {
        let target = resolve(schemas, field);
        let is_list = text_of(target, "type") == "array";
        let path = format!("{path}.{name}{}", if is_list { "[]" } else { "" });
        let inner = if is_list { resolve(schemas, &target["items"]) } else { target };
        let needed = if required.iter().any(|one| one == name) { ", required" } else { "" };
        let mut said = format!("`{path}` ({}{needed}): ", type_of(&target["items"], inner, is_list));
        let own = text_of(field, "description");
        said.push_str(&escape(if own.is_empty() { text_of(target, "description") } else { own }));
        if let Some(choices) = inner["enum"].as_array() {
            let choices: Vec<_> = choices.iter().filter_map(Value::as_str).collect();
            let _ = write!(said, " One of `{}`.", choices.join("`, `"));
        }
        if let Some(default) = field.get("default") {
            let _ =
                write!(said, " Default: `{}`.", default.as_str().map_or(default.to_string(), str::to_owned));
        }
        let is_large = inner["properties"].as_object().is_some_and(|fields| fields.len() >= MANY);
        let first = reference(if is_list { &target["items"] } else { field }).filter(|_| is_large);
        let first = first.map(|name| known.entry(name.to_owned()).or_insert_with(|| path.clone()).clone());
        if let Some(first) = first.filter(|first| *first != path) {
            let _ = write!(said, " Fields as of `{first}`.");
            lines(page, said.trim(), "- ", "  ");
            continue;
        }
        lines(page, said.trim(), "- ", "  ");
        fields_but(page, schemas, (inner, &path), known);
    }
}

fn type_of(items: &Value, inner: &Value, is_list: bool) -> String {
    let foreign = reference(if is_list { items } else { inner }).and_then(|name| name.rsplit('.').next());
    let kind = foreign.unwrap_or_else(|| text_of(inner, "type"));
    let kind = if kind.is_empty() { "any value" } else { kind };
    match (is_list, inner.get("additionalProperties").is_some()) {
        (true, _) => format!("list of {kind}"),
        (_, true) => "map".to_owned(),
        _ => kind.to_owned(),
    }
}

/// Keeps text from being read as HTML.
fn escape(text: &str) -> String {
    text.replace('<', "&lt;")
}

fn lines(page: &mut String, text: &str, first: &str, rest: &str) {
    let mut line = first.to_owned();
    for word in text.split_whitespace() {
        let begins = line == first || line == rest;
        if !begins && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(page, "{line}");
            line = rest.to_owned();
        } else if !begins {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(page, "{line}");
}
