{{/*
What the shared templates ask of a chart: the one for a seed.
*/}}

{{/* Whether gardenlet installs this chart, as a ControllerRegistration says: it then adds values below `gardener`. */}}
{{- define "seed.byGardenlet" -}}
{{- if dig "seed" "name" "" .Values.gardener }}true{{ end }}
{{- end }}

{{/* Name of the Seed in the garden; empty: no controllers for a garden. */}}
{{- define "seed.name" -}}
{{- .Values.garden.seedName | default (dig "seed" "name" "" .Values.gardener) }}
{{- end }}

{{/* Namespaces in which etcds and workflows are managed, as YAML; none: all. Beside gardenlet, etcd-druid manages etcds. */}}
{{- define "seed.namespaces" -}}
{{- if .Values.controllers.namespaces }}
{{- toYaml .Values.controllers.namespaces }}
{{- else if include "seed.byGardenlet" . }}
{{- toYaml (list .Release.Namespace) }}
{{- else }}[]{{ end }}
{{- end }}

{{/* Values that the schema cannot judge. */}}
{{- define "chart.validate" -}}
{{- include "repot.validate" . }}
{{- $garden := .Values.garden }}
{{- if and $garden.kubeconfigSecret (not (include "seed.name" .)) }}
{{- fail "garden.seedName is empty: garden.kubeconfigSecret needs the name of the Seed in the garden" }}
{{- end }}
{{- if and $garden.seedName (not $garden.kubeconfigSecret) (not (include "seed.byGardenlet" .)) }}
{{- fail "garden.kubeconfigSecret is empty: garden.seedName needs a Secret with the kubeconfig of the garden" }}
{{- end }}
{{- if and (include "seed.byGardenlet" .) (gt (len .Values.controllers.namespaces) 1) }}
{{- fail "controllers.namespaces has several entries: installed by gardenlet, the chart can have roles in one namespace" }}
{{- end }}
{{- if and .Values.controllers.membersGateway .Values.controllers.membersIstioGateway }}
{{- fail "controllers.membersGateway and controllers.membersIstioGateway are both set: set one of them" }}
{{- end }}
{{- if and (or .Values.controllers.membersGateway .Values.controllers.membersIstioGateway) (not (include "seed.name" .)) }}
{{- fail "garden.seedName is empty: a gateway for members is for seeds of a garden" }}
{{- end }}
{{- end }}

{{/* kubeconfig of the cluster with the API objects; empty: that of the Pod. */}}
{{- define "chart.kubeconfig" -}}{{- end }}

{{/* APIServices, as YAML. */}}
{{- define "chart.apiServices" -}}
- {group: migration.gardener.cloud, version: v1alpha1}
{{- end }}

{{/* Files with webhook configurations, as YAML. */}}
{{- define "chart.webhookFiles" -}}
- files/webhooks-seed.yaml
{{- end }}

{{/*
Name of a webhook configuration. Arguments: root, name, document.
gardener-resource-manager creates an object that has a CA bundle of its own only once, see below. So other content gets
another name.
*/}}
{{- define "chart.webhookConfigurationName" -}}
{{- if include "seed.byGardenlet" .root }}{{ .name }}-{{ .document | sha256sum | trunc 8 }}{{ else }}{{ .name }}{{ end }}
{{- end }}

{{/*
Annotations of objects that contain a CA bundle. Arguments: root, component.
gardener-resource-manager would remove a CA bundle that it has not written itself.
*/}}
{{- define "chart.publishedAnnotations" -}}
{{- include "repot.caAnnotations" . }}
{{- if and (include "seed.byGardenlet" .root) (ne .root.Values.certificates.issuer "existing") }}
resources.gardener.cloud/ignore: "true"
{{- end }}
{{- end }}

{{/* Further labels of a Deployment or StatefulSet. Arguments: root, component. Only controllers act in the garden. */}}
{{- define "chart.workloadLabels" -}}
{{- if and (include "seed.byGardenlet" .root) (ne .component "repot-controllers") -}}
extensions.gardener.cloud/inject-garden-kubeconfig: "false"
{{- end }}
{{- end }}

{{/* Flags of the API server about kinds. */}}
{{- define "chart.apiserverFlags" -}}
- --serve=seed
{{- end }}

{{/* Flags of the webhooks about kinds and users. Controllers are those of Gardener and of Repot. */}}
{{- define "chart.webhookFlags" -}}
{{- $users := list "system:serviceaccount:garden:*" (printf "system:serviceaccount:%s:*" .Release.Namespace) -}}
- --serve=seed
- {{ concat $users .Values.webhook.extraControllerUsers | join "," | printf "--controller-users=%s" | quote }}
- {{ join "," .Values.webhook.operatorGroups | printf "--operator-groups=%s" | quote }}
{{- end }}

{{/* URL of the webhooks, without a path; empty: their Service. */}}
{{- define "chart.webhookURL" -}}{{- end }}

{{/* Flags of the controllers. */}}
{{- define "chart.controllersFlags" -}}
- --scope=seed
- --image={{ include "repot.image" (dict "root" . "image" .Values.etcdImage) }}
{{- with include "seed.namespaces" . | fromYamlArray }}
- --namespaces={{ join "," . }}
{{- end }}
{{- with include "seed.name" . }}
- --seed-name={{ . }}
- --garden-kubeconfig={{ if $.Values.garden.kubeconfigSecret }}/etc/repot/garden/kubeconfig{{ else }}$(GARDEN_KUBECONFIG){{ end }}
{{- end }}
{{- with .Values.controllers.membersGateway }}
- --members-gateway={{ . }}
{{- end }}
{{- with .Values.controllers.membersIstioGateway }}
- --members-istio-gateway={{ . }}
{{- end }}
{{- with .Values.controllers.localStorePath }}
- {{ printf "--local-store-path=%s" . | quote }}
{{- end }}
{{- end }}

{{/* Volume `garden` of the controllers, or nothing. */}}
{{- define "chart.controllersVolumes" -}}
{{- with .Values.garden.kubeconfigSecret -}}
- name: garden
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}
