{{/* Values that the schema cannot judge, of both charts. */}}
{{- define "repot.validate" -}}
{{- $storage := .Values.storage }}
{{- $certificates := .Values.certificates }}
{{- if and (eq $storage.type "etcd") (not $storage.etcd.servers) }}
{{- fail "storage.etcd.servers is empty: storage.type=etcd needs the URLs of etcd" }}
{{- end }}
{{- if and (eq $certificates.issuer "repot") (lt (int $certificates.authorityDays) (mul 6 $certificates.servingDays | int)) }}
{{- fail "certificates.authorityDays is too small: an authority is valid at least six times as long as what it signs" }}
{{- end }}
{{- if and (eq $certificates.issuer "existing") (not $certificates.existing.caBundle) }}
{{- fail "certificates.existing.caBundle is empty: certificates.issuer=existing needs the authority in PEM" }}
{{- end }}
{{- if and (eq $certificates.issuer "existing") .Values.apiserver.enabled (not $certificates.existing.apiserverSecret) }}
{{- fail "certificates.existing.apiserverSecret is empty: certificates.issuer=existing needs the Secret of the API server" }}
{{- end }}
{{- if and (eq $certificates.issuer "existing") .Values.webhook.enabled (not $certificates.existing.webhookSecret) }}
{{- fail "certificates.existing.webhookSecret is empty: certificates.issuer=existing needs the Secret of the webhooks" }}
{{- end }}
{{- end }}
