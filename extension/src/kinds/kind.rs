//! One macro that declares a kind. `serde(flatten)` would be shorter, but it buffers values and so destroys raw JSON.

/// Declares the struct of a kind, of its spec and of its status, with what all kinds have in common.
macro_rules! extension_kind {
    (
        $(#[$doc:meta])*
        $Kind:ident ($Spec:ident, $Status:ident, $plural:literal, $finalizer:literal, $scope:ident)
        $(purpose $purpose:ident)?
        required { $($(#[$rdoc:meta])* $rfield:ident $(as $rname:literal)?: $rtype:ty,)* }
        optional { $($(#[$odoc:meta])* $ofield:ident $(as $oname:literal)?: $otype:ty,)* }
        lists { $($(#[$ldoc:meta])* $lfield:ident $(as $lname:literal)?: $ltype:ty,)* }
        status { $($(#[$sdoc:meta])* $sfield:ident $(as $sname:literal)?: $stype:ty,)* }
        status_lists { $($(#[$tdoc:meta])* $tfield:ident $(as $tname:literal)?: $ttype:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $Kind {
            /// Group and version, `extensions.gardener.cloud/v1alpha1`.
            #[serde(default)]
            pub api_version: String,
            /// Name of the kind in CamelCase.
            #[serde(default)]
            pub kind: String,
            /// Kubernetes metadata of the object.
            pub metadata: kube::core::ObjectMeta,
            /// What gardenlet asks for.
            pub spec: $Spec,
            /// What the controller reports; `None` before its first report.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<$Status>,
        }

        #[doc = concat!("What gardenlet asks for of kind ", stringify!($Kind), ".")]
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $Spec {
            /// The provider that the object is for.
            #[serde(rename = "type")]
            pub provider_type: String,
            /// Which cluster the object is for.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub class: Option<$crate::kinds::Class>,
            /// Configuration that the provider defines.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub provider_config: Option<$crate::raw::RawJson>,
            $($(#[$rdoc])* $(#[serde(rename = $rname)])? pub $rfield: $rtype,)*
            $($(#[$odoc])* #[serde($(rename = $oname,)? default, skip_serializing_if = "Option::is_none")]
              pub $ofield: Option<$otype>,)*
            $($(#[$ldoc])* #[serde($(rename = $lname,)? default, skip_serializing_if = "Vec::is_empty")]
              pub $lfield: Vec<$ltype>,)*
        }

        #[doc = concat!("What the controller reports of kind ", stringify!($Kind), ".")]
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $Status {
            /// Status that the provider defines.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub provider_status: Option<$crate::raw::RawJson>,
            /// Conditions that health checks write.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub conditions: Vec<$crate::status::Condition>,
            /// The last error; none after a success.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub last_error: Option<$crate::status::LastError>,
            /// What a controller did last.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub last_operation: Option<$crate::status::LastOperation>,
            /// The generation that the last finished operation acted on.
            pub observed_generation: i64,
            /// What is needed to continue in another seed.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub state: Option<$crate::raw::RawJson>,
            /// Objects that the state refers to.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub resources: Vec<$crate::status::NamedResourceReference>,
            $($(#[$sdoc])* #[serde($(rename = $sname,)? skip_serializing_if = "Option::is_none")]
              pub $sfield: Option<$stype>,)*
            $($(#[$tdoc])* #[serde($(rename = $tname,)? skip_serializing_if = "Vec::is_empty")]
              pub $tfield: Vec<$ttype>,)*
        }

        impl $Kind {
            /// An object of this kind without a status, to be created.
            #[must_use]
            pub fn new(metadata: kube::core::ObjectMeta, spec: $Spec) -> Self {
                let api_version = <Self as kube::Resource>::api_version(&()).into_owned();
                Self { api_version, kind: stringify!($Kind).to_owned(), metadata, spec, status: None }
            }
        }

        $crate::kinds::kind::kube_resource!($Kind, $plural, $scope);

        impl $crate::kinds::ExtensionObject for $Kind {
            const FINALIZER: &'static str = $finalizer;

            fn provider_type(&self) -> &str {
                &self.spec.provider_type
            }

            fn class(&self) -> $crate::kinds::Class {
                self.spec.class.unwrap_or_default()
            }

            fn provider_config(&self) -> Option<&$crate::raw::RawJson> {
                self.spec.provider_config.as_ref()
            }

            $(fn purpose(&self) -> Option<&str> {
                Some(&self.spec.$purpose)
            })?

            fn status(&self) -> $crate::kinds::StatusView<'_> {
                let Some(status) = &self.status else { return $crate::kinds::StatusView::default() };
                $crate::kinds::StatusView {
                    provider_status: status.provider_status.as_ref(),
                    conditions: &status.conditions,
                    last_error: status.last_error.as_ref(),
                    last_operation: status.last_operation.as_ref(),
                    observed_generation: status.observed_generation,
                    state: status.state.as_ref(),
                    resources: &status.resources,
                }
            }

            fn has_status(&self) -> bool {
                self.status.is_some()
            }

            fn drop_large_fields(&mut self) {
                self.metadata.managed_fields = None;
                self.spec.provider_config = None;
                if let Some(status) = &mut self.status {
                    (status.state, status.provider_status) = (None, None);
                }
            }

            fn api(client: kube::Client, namespace: Option<&str>) -> kube::Api<Self> {
                $crate::kinds::kind::api_of_scope!($scope, client, namespace)
            }
        }
    };
}

/// Implements `kube::Resource` for a struct with `metadata`.
macro_rules! kube_resource {
    ($Kind:ident, $plural:literal, $scope:ident) => {
        impl kube::Resource for $Kind {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($Kind).into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                repot_api::names::EXTENSIONS_GROUP.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                repot_api::names::V1ALPHA1.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// The API of a kind by its scope: cluster-scoped kinds have no namespace.
macro_rules! api_of_scope {
    (NamespaceResourceScope, $client:ident, $namespace:ident) => {
        match $namespace {
            Some(namespace) => kube::Api::namespaced($client, namespace),
            None => kube::Api::all($client),
        }
    };
    (ClusterResourceScope, $client:ident, $namespace:ident) => {{
        let _ = $namespace;
        kube::Api::all($client)
    }};
}

pub(crate) use {api_of_scope, extension_kind, kube_resource};
