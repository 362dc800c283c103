//! Kubernetes Events: what one says, and the one way to publish it.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

/// The longest note that kube-apiserver accepts, in bytes.
const NOTE_BYTES: usize = 1024;

/// What a Kubernetes Event says, without the object that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventContent {
    /// Whether the type of the Event is `Warning` rather than `Normal`.
    pub is_warning: bool,
    /// What happened, in one CamelCase word.
    pub reason: String,
    /// What the controller did, in one CamelCase word.
    pub action: &'static str,
    /// What happened, for people; empty where the reason says it all.
    pub message: String,
}

impl EventContent {
    /// An Event of type `Normal`.
    #[must_use]
    pub fn normal(action: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { is_warning: false, reason: reason.into(), action, message: message.into() }
    }

    /// An Event of type `Warning`.
    #[must_use]
    pub fn warning(action: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { is_warning: true, reason: reason.into(), action, message: message.into() }
    }

    /// Gives the Event as it is published. A note that is too long for kube-apiserver is cut at the end of a character.
    fn into_event(self) -> Event {
        let mut note = self.message;
        let end = (0..=NOTE_BYTES).rev().find(|end| note.is_char_boundary(*end)).unwrap_or_default();
        if note.len() > NOTE_BYTES {
            note.truncate(end);
        }
        Event {
            type_: if self.is_warning { EventType::Warning } else { EventType::Normal },
            reason: self.reason,
            note: (!note.is_empty()).then_some(note),
            action: self.action.to_owned(),
            secondary: None,
        }
    }
}

/// Publishes the Events of one controller.
#[derive(Clone)]
pub struct EventPublisher(Recorder);

impl EventPublisher {
    /// Publishes as this controller; `instance` is the name of this process, if it has one.
    #[must_use]
    pub fn new(client: Client, controller: &str, instance: Option<String>) -> Self {
        Self(Recorder::new(client, Reporter { controller: controller.to_owned(), instance }))
    }

    /// Publishes an Event about an object. An Event is a hint, so one that cannot be published is only logged.
    pub async fn publish(&self, about: &ObjectReference, content: EventContent) {
        let event = content.into_event();
        if let Err(error) = self.0.publish(&event, about).await {
            tracing::warn!(
                kind = about.kind,
                namespace = about.namespace,
                name = about.name,
                reason = event.reason,
                note = event.note,
                %error,
                "failed to publish an Event"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_cut_to_the_bytes_that_kube_apiserver_accepts() {
        let note = |message: String| EventContent::normal("Act", "Done", message).into_event().note;
        assert_eq!(note(String::new()), None);
        assert_eq!(note("short".to_owned()).as_deref(), Some("short"));
        let longest = "a".repeat(NOTE_BYTES);
        assert_eq!(note(longest.clone()), Some(longest.clone()));
        assert_eq!(note(format!("{longest}b")), Some(longest));
        // A character of three bytes does not fit where one byte is left.
        assert_eq!(note("€".repeat(400)), Some("€".repeat(341)));
    }
}
