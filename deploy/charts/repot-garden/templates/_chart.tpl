{{/*
What the shared templates ask of a chart: the one for a garden.
*/}}

{{/* Values that the schema cannot judge. */}}
{{- define "chart.validate" -}}
{{- include "repot.validate" . }}
{{- $garden := .Values.garden }}
{{- if and (eq .Values.mode "runtime") (not $garden.kubeconfigSecret) }}
{{- fail "garden.kubeconfigSecret is empty: mode=runtime needs a Secret with the kubeconfig of the virtual garden" }}
{{- end }}
{{- if and (ne .Values.mode "runtime") $garden.kubeconfigSecret }}
{{- fail (printf "garden.kubeconfigSecret is set, but mode=%s runs no Pods beside a virtual garden: set mode=runtime" .Values.mode) }}
{{- end }}
{{- if and (ne .Values.mode "all") (not $garden.subjects) }}
{{- fail (printf "garden.subjects is empty: mode=%s needs the users of the kubeconfig of the virtual garden" .Values.mode) }}
{{- end }}
{{- if and (eq .Values.mode "application") .Values.apiserver.enabled (not $garden.apiserverAddress) }}
{{- fail "garden.apiserverAddress is empty: mode=application needs the address of the API server in the runtime cluster" }}
{{- end }}
{{- if and (ne .Values.mode "all") (eq .Values.certificates.issuer "cert-manager") }}
{{- fail "certificates.issuer=cert-manager publishes into its own cluster only: use repot or existing for a virtual garden" }}
{{- end }}
{{- end }}

{{/* kubeconfig of the cluster with the API objects; empty: that of the Pod. */}}
{{- define "chart.kubeconfig" -}}
{{- if eq .Values.mode "runtime" }}/etc/repot/garden/kubeconfig{{ end }}
{{- end }}

{{/* APIServices, as YAML. */}}
{{- define "chart.apiServices" -}}
{{- if eq .Values.shootstateGroup "core.gardener.cloud" }}
- {group: core.gardener.cloud, version: v1alpha1}
{{- end }}
- {group: migration.gardener.cloud, version: v1alpha1}
{{- end }}

{{/* Files with webhook configurations, as YAML. */}}
{{- define "chart.webhookFiles" -}}
- files/webhooks-garden.yaml
{{- if eq .Values.serve "all" }}
- files/webhooks-seed.yaml
{{- end }}
{{- end }}

{{/* Name of a webhook configuration. Arguments: root, name, document. */}}
{{- define "chart.webhookConfigurationName" -}}{{ .name }}{{- end }}

{{/* Annotations of objects that contain a CA bundle. Arguments: root, component. */}}
{{- define "chart.publishedAnnotations" -}}{{ include "repot.caAnnotations" . }}{{- end }}

{{/* Further labels of a Deployment or StatefulSet. Arguments: root, component. */}}
{{- define "chart.workloadLabels" -}}{{- end }}

{{/* Flags of the API server about kinds. */}}
{{- define "chart.apiserverFlags" -}}
- --serve={{ .Values.serve }}
- --shootstate-group={{ .Values.shootstateGroup }}
{{- end }}

{{/* Flags of the webhooks about kinds and users. Controllers are those of Gardener, of Repot here, and of Repot on seeds. */}}
{{- define "chart.webhookFlags" -}}
{{- $groups := list }}
{{- $users := list "system:serviceaccount:garden:*" (printf "system:serviceaccount:%s:*" (include "repot.apiNamespace" .)) }}
{{- $users = append $users (printf "system:serviceaccount:%s:*" .Values.seeds.namespace) }}
{{- if .Values.seeds.controllerRegistration }}{{ $users = append $users "system:serviceaccount:seed-*" }}{{ end }}
{{- range .Values.garden.subjects }}
{{- if eq .kind "ServiceAccount" }}{{ $users = append $users (printf "system:serviceaccount:%s:%s" .namespace .name) }}
{{- else if eq .kind "Group" }}{{ $groups = append $groups .name }}
{{- else }}{{ $users = append $users .name }}{{ end }}
{{- end -}}
- --serve={{ .Values.serve }}
- {{ concat $users .Values.webhook.extraControllerUsers | join "," | printf "--controller-users=%s" | quote }}
{{- with concat $groups .Values.seeds.extraGroups }}
- {{ join "," . | printf "--controller-groups=%s" | quote }}
{{- end }}
- {{ join "," .Values.webhook.operatorGroups | printf "--operator-groups=%s" | quote }}
{{- with .Values.webhook.defaultDistanceThreshold }}
- --default-distance-threshold={{ int . }}
{{- end }}
{{- end }}

{{/* URL of the webhooks, without a path; empty: their Service. */}}
{{- define "chart.webhookURL" -}}
{{- if eq .Values.mode "application" }}
{{- $namespace := .Values.garden.runtimeNamespace | default .Release.Namespace }}
{{- .Values.garden.webhookURL | default (printf "https://repot-webhook.%s.svc" $namespace) | trimSuffix "/" }}
{{- end }}
{{- end }}

{{/* Flags of the controllers. */}}
{{- define "chart.controllersFlags" -}}
- --scope=garden
{{- if .Values.controllers.migrateOnSeedChange }}
- --migrate-on-seed-change
{{- end }}
- --max-migrations-per-seed={{ .Values.controllers.maxMigrationsPerSeed }}
{{- end }}

{{/* Volume `garden` of the controllers, or nothing. */}}
{{- define "chart.controllersVolumes" -}}
{{- if include "chart.kubeconfig" . -}}
- name: garden
  secret:
    secretName: {{ .Values.garden.kubeconfigSecret }}
    defaultMode: 0440
{{- end }}
{{- end }}
