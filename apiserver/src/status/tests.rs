use super::*;

#[test]
fn a_status_is_short_however_much_is_wrong() {
    let errors = |count: usize| -> Vec<FieldError> {
        let error = |n| FieldError::invalid(format!("spec.x[{n}]"), "v".repeat(100_000), "is wrong");
        (0..count).map(error).collect()
    };
    let invalid = |count: usize| Status::invalid(("g", "K"), &"n".repeat(1 << 20), &errors(count));
    let text: serde_json::Value = serde_json::from_slice(&invalid(5000).to_json()).expect("JSON");
    assert_eq!(text["details"]["causes"].as_array().map(Vec::len), Some(MAX_ERRORS));
    let message = text["message"].as_str().expect("a message");
    assert!(message.ends_with("too many errors: only the first 100 are listed]"), "{message}");
    assert!(invalid(5000).to_json().len() < 200 << 10, "{} bytes", invalid(5000).to_json().len());
    assert!(!invalid(MAX_ERRORS).to_string().contains("too many errors"));
}
