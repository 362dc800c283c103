{{/* The operator: members of an Etcd. */}}
{{- define "seed.etcdMembersRules" -}}
# An Etcd whose members are part of another etcd gets a finalizer.
- apiGroups: [druid.gardener.cloud]
  resources: [etcds]
  verbs: [get, list, patch, watch]
- apiGroups: [druid.gardener.cloud]
  resources: [etcds/status]
  verbs: [get, patch, update]
# What is made blocks the deletion of its Etcd in the foreground.
- apiGroups: [druid.gardener.cloud]
  resources: [etcds/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, get, list, patch, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [delete, get, list, watch]
# A claim is deleted when its member was removed.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [delete, get, list, watch]
# One for each member; those of members that are gone are deleted.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create, delete, list, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Certificates with which members are asked; each is read by its name.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}

{{/* Workflows: EtcdBackup, EtcdRestore, EtcdMigration, HostedEtcd. */}}
{{- define "seed.workflowsRules" -}}
# A workflow sets a finalizer on itself and on the HostedEtcd that it changes, by a patch of the object.
- apiGroups: [migration.gardener.cloud]
  resources: [hostedetcds, etcdbackups, etcdrestores, etcdmigrations]
  verbs: [get, list, patch, update, watch]
- apiGroups: [migration.gardener.cloud]
  resources: [hostedetcds/status, etcdbackups/status, etcdrestores/status, etcdmigrations/status]
  verbs: [get, patch, update]
# deleteEtcd and startRestore are written into the Etcd; the operator does the rest.
- apiGroups: [druid.gardener.cloud]
  resources: [etcds]
  verbs: [get, list, patch, watch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get]
# stopApi and startApi.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, patch, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# Volumes of an etcd that was made anew.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [delete, get, list]
# Credentials of stores, and certificates for the members.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
# Backups are taken and verified by Jobs.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
