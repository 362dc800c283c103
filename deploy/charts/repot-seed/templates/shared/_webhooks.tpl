{{/* How an API server reaches a webhook. Arguments: root, path. */}}
{{- define "repot.webhookClient" -}}
{{- with include "chart.webhookURL" .root }}
url: {{ . }}{{ $.path }}
{{- else }}
service:
  name: repot-webhook
  namespace: {{ .root.Release.Namespace }}
  path: {{ .path }}
  port: 443
{{- end }}
{{- if eq .root.Values.certificates.issuer "existing" }}
caBundle: {{ .root.Values.certificates.existing.caBundle | b64enc }}
{{- end }}
{{- end }}

{{/* Namespaces whose objects are reviewed: not those that have to be repairable while the webhooks are down. */}}
{{- define "repot.webhookSelector" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: [kube-system, {{ .Release.Namespace }}]
{{- end }}
