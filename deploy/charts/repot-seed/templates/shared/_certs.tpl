{{/* Components with a serving certificate, as YAML. */}}
{{- define "repot.servingComponents" -}}
{{- $found := list }}
{{- if .Values.apiserver.enabled }}{{ $found = append $found "repot-apiserver" }}{{ end }}
{{- if .Values.webhook.enabled }}{{ $found = append $found "repot-webhook" }}{{ end }}
{{- toYaml $found }}
{{- end }}

{{/* Names of a component for its certificate, beside those of its Service, as YAML. Arguments: root, component. */}}
{{- define "repot.extraNames" -}}
{{- $found := list }}
{{- if include "chart.kubeconfig" .root }}
{{- if eq .component "repot-apiserver" }}
{{- $found = append $found (printf "repot-apiserver.%s.svc" (include "repot.apiNamespace" .root)) }}
{{- end }}
{{- end }}
{{- range (eq .component "repot-webhook" | ternary .root.Values.webhook.extraNames .root.Values.apiserver.extraNames) }}
{{- $found = append $found . }}
{{- end }}
{{- toYaml (uniq $found) }}
{{- end }}

{{/* Flags of `repot certs` that say which certificates there are, and who has their bundle. */}}
{{- define "repot.certsKept" -}}
- --namespace={{ .Release.Namespace }}
- --authorities-secret=repot-authorities
{{- if eq .Values.certificates.issuer "repot" }}
{{- range $component := include "repot.servingComponents" . | fromYamlArray }}
- --serving={{ $component }}-tls={{ $component }}
{{- range include "repot.extraNames" (dict "root" $ "component" $component) | fromYamlArray }}
- --extra-name={{ $component }}-tls={{ . }}
{{- end }}
{{- end }}
{{- range include "repot.apiServices" . | fromYamlArray }}
- --publish=apiservice/{{ .version }}.{{ .group }}
{{- end }}
{{- range include "repot.webhookConfigurations" . | fromYamlArray }}
- --publish={{ lower .kind }}/{{ .name }}
{{- end }}
{{- with include "chart.kubeconfig" . }}
- --published-kubeconfig={{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Flags of `repot certs manage`. */}}
{{- define "repot.certsFlags" -}}
{{- include "repot.certsKept" . }}
{{- if eq .Values.certificates.issuer "repot" }}
- --serving-validity={{ mul 24 .Values.certificates.servingDays }}h
- --authority-validity={{ mul 24 .Values.certificates.authorityDays }}h
- --overlap={{ .Values.certificates.overlap }}
{{- end }}
{{- if and .Values.apiserver.enabled .Values.encryption.generate }}
- --encryption-secret={{ .Values.encryption.secretName }}
{{- end }}
{{- end }}
