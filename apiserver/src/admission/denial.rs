//! A webhook's no, as the client is told it. Pure.

use serde_json::{Value, json};

use crate::status::Status;

/// What a webhook's no looks like to the client: the status that it gave, made fit.
pub(super) fn denied(name: &str, status: Option<Value>) -> Status {
    let mut status = status.filter(Value::is_object).unwrap_or_else(|| json!({}));
    let text = |key: &str| status[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let message = match (text("message"), text("reason")) {
        (Some(why), _) | (None, Some(why)) => format!("admission webhook {name:?} denied the request: {why}"),
        (None, None) => format!("admission webhook {name:?} denied the request without explanation"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
    let code = if (400..600).contains(&code) { code } else { 400 };
    status["message"] = message.into();
    status["code"] = code.into();
    status["status"] = "Failure".into();
    status["kind"] = "Status".into();
    status["apiVersion"] = "v1".into();
    if !status["metadata"].is_object() {
        status["metadata"] = json!({});
    }
    Status::verbatim(code, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(status: Option<Value>) -> Value {
        serde_json::from_slice(&denied("w.example.com", status).to_json()).expect("JSON")
    }

    #[test]
    fn a_denial_shows_the_status_of_the_webhook() {
        let given = json!({"code": 422, "reason": "Invalid", "message": "no", "details": {"causes": [{"field": "spec"}]}});
        let status = shown(Some(given));
        assert_eq!(status["message"], "admission webhook \"w.example.com\" denied the request: no");
        assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
        assert_eq!(status["details"]["causes"][0]["field"], "spec");
        assert_eq!(denied("w", Some(json!({"code": 422}))).code().as_u16(), 422);
    }

    #[test]
    fn a_denial_is_a_failure_whatever_the_webhook_says() {
        for given in [
            None,
            Some(json!(null)),
            Some(json!({"code": 200, "status": "Success"})),
            Some(json!({"code": 70_000})),
        ] {
            let status = shown(given);
            assert_eq!((&status["code"], &status["status"]), (&json!(400), &json!("Failure")));
            assert_eq!(
                status["message"],
                "admission webhook \"w.example.com\" denied the request without explanation"
            );
        }
        let status = shown(Some(json!({"reason": "Forbidden"})));
        assert_eq!(status["message"], "admission webhook \"w.example.com\" denied the request: Forbidden");
        // The reason of somebody else's status must not make this server try again.
        assert_eq!(denied("w", Some(json!({"reason": "Conflict"}))).reason(), "");
    }
}
