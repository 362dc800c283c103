{{/* What the controllers of migrations may do with the kinds of Repot. */}}
{{- define "garden.migrationControllerRules" -}}
- apiGroups: [migration.gardener.cloud]
  resources: [controlplanemigrations, zoneisolations]
  verbs: [create, get, list, patch, update, watch]
- apiGroups: [migration.gardener.cloud]
  resources: [controlplanemigrations/status, zoneisolations/status]
  verbs: [get, patch, update]
{{- end }}

{{/* What the controllers of a seed may do in the garden, beside that. */}}
{{- define "garden.seedRules" -}}
- apiGroups: [core.gardener.cloud, migration.gardener.cloud]
  resources: [shootstates]
  verbs: [create, get, patch]
# The Cluster of a Shoot at its destination is made of these.
- apiGroups: [core.gardener.cloud]
  resources: [shoots]
  verbs: [get, list, watch]
- apiGroups: [core.gardener.cloud]
  resources: [seeds, cloudprofiles]
  verbs: [get]
# The Shoot owns its ShootState, and waits for its deletion.
- apiGroups: [core.gardener.cloud]
  resources: [shoots/finalizers]
  verbs: [update]
# Which Secret has the credentials of a bucket.
- apiGroups: [core.gardener.cloud]
  resources: [backupbuckets]
  verbs: [list]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* Groups of the controllers of seeds, as subjects. */}}
{{- define "garden.seedSubjects" -}}
- kind: Group
  apiGroup: rbac.authorization.k8s.io
  name: system:serviceaccounts:{{ .Values.seeds.namespace }}
{{- range .Values.seeds.extraGroups }}
- kind: Group
  apiGroup: rbac.authorization.k8s.io
  name: {{ . }}
{{- end }}
{{- end }}
