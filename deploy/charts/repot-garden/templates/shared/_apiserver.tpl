{{/* Flags of the API server, but those about its end. */}}
{{- define "repot.apiserverFlags" -}}
{{ include "repot.logFlags" . }}
- {{ printf "--bind-address=%s" .Values.bindAddress | quote }}
- --secure-port=8443
- --tls-cert-file=/etc/repot/tls/tls.crt
- --tls-private-key-file=/etc/repot/tls/tls.key
{{- with include "chart.kubeconfig" . }}
- --kubeconfig={{ . }}
- --authentication-kubeconfig={{ . }}
- --authorization-kubeconfig={{ . }}
{{- end }}
{{ include "chart.apiserverFlags" . }}
{{ include "repot.storageFlags" . }}
{{- if include "repot.marksLostPeers" . }}
- --mark-lost-peers
{{- end }}
{{- if not .Values.apiserver.profiling }}
- --profiling=false
{{- end }}
{{- with .Values.tracing.config }}
- --tracing-config-file=/etc/repot/config/tracing.yaml
{{- end }}
{{- with .Values.apiserver.audit }}
{{- if .logPath }}
- {{ printf "--audit-log-path=%s" .logPath | quote }}
{{- if .policy }}
- --audit-policy-file=/etc/repot/config/audit.yaml
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Flags that say where objects are stored, and how they are encrypted. */}}
{{- define "repot.storageFlags" -}}
- --encryption-provider-config=/etc/repot/encryption/encryption-config.yaml
- --encryption-provider-config-automatic-reload={{ .Values.encryption.automaticReload }}
{{- if eq .Values.storage.type "embedded" }}
- --storage=embedded:/var/lib/repot/store
{{- else }}
- --storage=etcd
- {{ join "," .Values.storage.etcd.servers | printf "--etcd-servers=%s" | quote }}
- {{ printf "--etcd-prefix=%s" .Values.storage.etcd.prefix | quote }}
{{- if .Values.storage.etcd.tlsSecret }}
- --etcd-cafile=/etc/repot/etcd/ca.crt
- --etcd-certfile=/etc/repot/etcd/tls.crt
- --etcd-keyfile=/etc/repot/etcd/tls.key
{{- end }}
- --spool-dir=/var/spool/repot
{{- end }}
{{- if .Values.chunkStore.url }}
- {{ printf "--chunk-store=%s" .Values.chunkStore.url | quote }}
- --chunk-retention={{ .Values.chunkStore.retention }}
- --chunk-retention-max-bytes={{ .Values.chunkStore.retentionMaxBytes | int64 }}
{{- else }}
- --high-water-mark=lease:{{ include "repot.apiNamespace" . }}/repot-high-water-mark
{{- end }}
{{- end }}

{{/* Whether API servers watch each other, in the cluster of their Pods: not empty, or empty. */}}
{{- define "repot.marksLostPeers" -}}
{{- if and (eq .Values.storage.type "etcd") .Values.apiserver.markLostPeers }}true{{ end }}
{{- end }}

{{/* Files of the API server that are no secrets: data of its ConfigMap, or nothing. */}}
{{- define "repot.apiserverFiles" -}}
{{- $files := dict }}
{{- with include "repot.tracing" . }}{{ $_ := set $files "tracing.yaml" . }}{{ end }}
{{- with .Values.apiserver.audit }}
{{- if and .logPath .policy }}{{ $_ := set $files "audit.yaml" (toYaml .policy) }}{{ end }}
{{- end }}
{{- if $files }}{{ toYaml $files }}{{ end }}
{{- end }}

{{/* The TracingConfiguration, or nothing. */}}
{{- define "repot.tracing" -}}
{{- with .Values.tracing.config }}
{{- toYaml (merge (dict) . (dict "apiVersion" "apiserver.config.k8s.io/v1" "kind" "TracingConfiguration")) }}
{{- end }}
{{- end }}
