{{/*
Helpers of both charts. The directory `shared` is the same in both; what differs is in `_chart.tpl`.
*/}}

{{/* Labels of an object. Arguments: root, component. */}}
{{- define "repot.labels" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/part-of: repot
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels by which Services, policies and controllers select the Pods of a component. They must never change. */}}
{{- define "repot.selector" -}}
app.kubernetes.io/name: {{ .component }}
{{- end }}

{{/* Metadata of a namespaced object of the release. Arguments: root, component, name. */}}
{{- define "repot.metadata" -}}
name: {{ .name | default .component }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "repot.labels" . | nindent 2 }}
{{- end }}

{{/* Whether this release has the Pods: not empty, or empty. */}}
{{- define "repot.isRuntime" -}}
{{- if ne (.Values.mode | default "all") "application" }}true{{ end }}
{{- end }}

{{/* Whether this release has what belongs into the cluster of the API objects: not empty, or empty. */}}
{{- define "repot.isApplication" -}}
{{- if ne (.Values.mode | default "all") "runtime" }}true{{ end }}
{{- end }}

{{/* Namespace of Repot in the cluster of the API objects: of its Leases and of the Service behind the APIServices. */}}
{{- define "repot.apiNamespace" -}}
{{- if eq (.Values.mode | default "all") "runtime" }}{{ .Values.garden.namespace | default .Release.Namespace }}
{{- else }}{{ .Release.Namespace }}{{ end }}
{{- end }}

{{/* Subjects of the bindings of a component. Arguments: root, component. */}}
{{- define "repot.subjects" -}}
{{- if eq (.root.Values.mode | default "all") "application" }}
{{- toYaml .root.Values.garden.subjects }}
{{- else -}}
- kind: ServiceAccount
  name: {{ .component }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}
{{- end }}

{{/* Reference to an image. Arguments: root, image. */}}
{{- define "repot.image" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}
{{- else }}{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Address to listen on, for flags with a port behind it. */}}
{{- define "repot.healthAddress" -}}
{{- if contains ":" .Values.bindAddress }}[{{ .Values.bindAddress }}]:8081{{ else }}{{ .Values.bindAddress }}:8081{{ end }}
{{- end }}

{{/* Name of the PriorityClass of the Pods; empty: that of the cluster. */}}
{{- define "repot.priorityClass" -}}
{{- with .Values.priorityClass }}{{ if .create }}{{ .name | default "repot" }}{{ else }}{{ .name }}{{ end }}{{ end }}
{{- end }}

{{/* Metadata of the Pods of a component. Arguments: root, component, checksum (optional). */}}
{{- define "repot.podMetadata" -}}
labels:
  {{- include "repot.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: repot
  app.kubernetes.io/instance: {{ .root.Release.Name }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or .checksum .root.Values.podAnnotations }}
annotations:
  {{- with .checksum }}
  checksum/config: {{ . }}
  {{- end }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What all Pod specs have in common. Arguments: root, component, token (whether it needs one of this cluster). */}}
{{- define "repot.pod" -}}
serviceAccountName: {{ .component }}
automountServiceAccountToken: {{ .token }}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with include "repot.priorityClass" .root }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml (merge (dict "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" $.component))) .) | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What all containers have in common. Arguments: root. */}}
{{- define "repot.container" -}}
image: {{ include "repot.image" (dict "root" .root "image" .root.Values.image) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Environment of all containers. Arguments: values of the component. */}}
{{- define "repot.environment" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- with .extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Flags of every command. */}}
{{- define "repot.logFlags" -}}
- {{ printf "--log-level=%s" .Values.logLevel | quote }}
- --log-format={{ .Values.logFormat }}
{{- end }}

{{/* Name of the Secret with the serving certificate of a component. Arguments: root, component. */}}
{{- define "repot.tlsSecret" -}}
{{- $certificates := .root.Values.certificates }}
{{- if eq $certificates.issuer "existing" }}
{{- get $certificates.existing (eq .component "repot-webhook" | ternary "webhookSecret" "apiserverSecret") }}
{{- else }}{{ .component }}-tls{{ end }}
{{- end }}

{{/* Annotations by which cert-manager publishes the authority of a component. Arguments: root, component. */}}
{{- define "repot.caAnnotations" -}}
{{- if eq .root.Values.certificates.issuer "cert-manager" -}}
cert-manager.io/inject-ca-from: {{ .root.Release.Namespace }}/{{ .component }}-tls
{{- end }}
{{- end }}

{{/* Whether the Deployment repot-certs has anything to do: not empty, or empty. */}}
{{- define "repot.runsCerts" -}}
{{- $serves := or .Values.apiserver.enabled .Values.webhook.enabled }}
{{- $issues := and $serves (eq .Values.certificates.issuer "repot") }}
{{- if or $issues (and .Values.apiserver.enabled .Values.encryption.generate) }}true{{ end }}
{{- end }}

{{/* APIServices of this release, as YAML: group and version of each. */}}
{{- define "repot.apiServices" -}}
{{- if .Values.apiserver.enabled }}{{ include "chart.apiServices" . }}{{ else }}[]{{ end }}
{{- end }}

{{/* Webhook configurations of this release, as YAML: kind and name of each. */}}
{{- define "repot.webhookConfigurations" -}}
{{- $found := list }}
{{- if .Values.webhook.enabled }}
{{- range $file := include "chart.webhookFiles" . | fromYamlArray }}
{{- range $document := splitList "\n---\n" ($.Files.Get $file) }}
{{- with fromYaml $document }}
{{- $name := include "chart.webhookConfigurationName" (dict "root" $ "name" .metadata.name "document" $document) }}
{{- $found = append $found (dict "kind" .kind "name" $name "webhooks" .webhooks) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{/* Whether a PodDisruptionBudget makes sense for so many replicas. Arguments: root, replicas. */}}
{{- define "repot.hasBudget" -}}
{{- if and .root.Values.podDisruptionBudgets (gt (int .replicas) 1) }}true{{ end }}
{{- end }}

{{/* A PodDisruptionBudget. Arguments: root, component. */}}
{{- define "repot.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "repot.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  # A Pod that is not ready serves nobody and may always be evicted.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "repot.selector" . | nindent 6 }}
{{- end }}

{{/* Probes of a server. Arguments: scheme, port. */}}
{{- define "repot.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}
