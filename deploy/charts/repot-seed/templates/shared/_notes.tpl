{{/* What uninstall keeps, and how it is deleted. */}}
{{- define "repot.notesAboutUninstall" -}}
{{- $namespace := .Release.Namespace }}
{{- $embedded := and .Values.apiserver.enabled (eq .Values.storage.type "embedded") -}}
`helm uninstall` keeps what cannot be made again:
{{- if $embedded }}
  - PersistentVolumeClaim data-repot-apiserver-0, which holds all objects
{{- end }}
{{- if .Values.apiserver.enabled }}
  - Secret {{ .Values.encryption.secretName }}, without which nobody can read them
  {{- if not .Values.chunkStore.url }}
  - Lease repot-high-water-mark, by which a store that was set back or exchanged is noticed
  {{- end }}
{{- end }}
{{- if eq .Values.certificates.issuer "repot" }}
  - Secrets repot-authorities, repot-apiserver-tls and repot-webhook-tls
{{- end }}
An installation with the same values goes on with them. To delete them, and with them all objects for ever:
{{ if $embedded }}
  kubectl delete pvc -n {{ $namespace }} data-repot-apiserver-0
{{- end }}
{{- if and .Values.apiserver.enabled (not .Values.chunkStore.url) }}
  kubectl delete lease -n {{ include "repot.apiNamespace" . }} repot-high-water-mark
  {{- if ne (include "chart.kubeconfig" .) "" }}   # in the virtual garden{{ end }}
{{- end }}
  kubectl delete secret -n {{ $namespace }} --ignore-not-found {{ .Values.encryption.secretName }} repot-authorities \
    repot-apiserver-tls repot-webhook-tls
{{- end }}

{{/* What an operator does after the installation. */}}
{{- define "repot.notesAboutKeys" -}}
{{- if and .Values.apiserver.enabled .Values.encryption.generate }}
Save the encryption keys in another place. Without them no object can be read:

  kubectl get secret -n {{ .Release.Namespace }} {{ .Values.encryption.secretName }} -o yaml > repot-encryption.yaml
{{- end }}
{{- if and .Values.apiserver.enabled (not .Values.encryption.generate) }}
The API server starts when Secret {{ .Values.encryption.secretName }} has the key encryption-config.yaml.
{{- end }}
{{- end }}
