//! Match conditions: expressions in CEL that all have to hold before a webhook is asked.
//!
//! The interpreter has no budget of its own, so what an expression may cost is bounded before it runs: only the members
//! of an object that it names are read, those may have [`MAX_BYTES`], and bytes times values to the power of the nesting
//! of its loops may not pass [`MAX_WORK`]. What passes runs beside the requests, for [`MAX_TIME`] at most. An expression
//! beyond that has failed, and so has one that uses what only kube-apiserver has: `authorizer`, and the libraries
//! for URLs, IP addresses, quantities and formats. The failure policy of the webhook decides what a failure means.

mod needs;
mod values;

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use cel::{Context, Env, ExecutionError, Program, Value};
use k8s_openapi::api::admissionregistration::v1::MatchCondition;

pub use needs::{Members, UsedVariables};
pub use values::Json;

/// Bytes of JSON that a variable may have.
pub const MAX_BYTES: usize = 1 << 20;
/// See the head of this file: about a second of loops.
const MAX_WORK: u128 = 1_000_000_000;
const MAX_TIME: Duration = Duration::from_secs(2);
/// The longest expression that is read; kube-apiserver has no longer ones.
const MAX_EXPRESSION: usize = 16 << 10;

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    // Each registers names of its own; a clash would leave the later ones out, and the tests would say so.
    let _ = environment.add_extension(cel::extensions::strings);
    let _ = environment.add_extension(cel::extensions::lists);
    Arc::new(environment)
});

/// The conditions of a webhook, read once.
#[derive(Clone)]
pub struct Conditions(Arc<Vec<Condition>>);

struct Condition {
    name: String,
    program: Result<Program, String>,
    needs: UsedVariables,
}

/// What the expressions are about.
#[derive(Clone, Default)]
pub struct Variables {
    /// The new state; the members that are needed.
    pub object: Json,
    /// The old state; the members that are needed.
    pub old: Json,
    /// The request as an AdmissionReview has it, without the objects.
    pub request: Bytes,
}

impl Conditions {
    /// Reads expressions. One that cannot be read fails whenever it is asked.
    #[must_use]
    pub fn compile(conditions: &[MatchCondition]) -> Self {
        Self(Arc::new(conditions.iter().map(compile).collect()))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the expressions look at, all together.
    #[must_use]
    pub fn needs(&self) -> UsedVariables {
        self.0.iter().fold(UsedVariables::default(), |all, condition| all.with(&condition.needs))
    }

    /// Whether all conditions hold. One that does not is enough to say no, whatever happens to the others.
    ///
    /// # Errors
    /// Which condition could not be judged, and why; never with a value of the object.
    pub async fn hold(&self, variables: Variables) -> Result<bool, String> {
        let conditions = self.clone();
        let judged = tokio::task::spawn_blocking(move || {
            // The interpreter is not ours: should it panic, that is a failure of the expression.
            std::panic::catch_unwind(AssertUnwindSafe(|| judge(&conditions.0, &variables)))
                .unwrap_or_else(|_| Err("the expression could not be evaluated".to_owned()))
        });
        match tokio::time::timeout(MAX_TIME, judged).await {
            Ok(Ok(judged)) => judged,
            Ok(Err(_)) => Err("the expression could not be evaluated".to_owned()),
            Err(_) => Err("the evaluation took too long".to_owned()),
        }
    }
}

fn compile(condition: &MatchCondition) -> Condition {
    let name = condition.name.clone();
    let source = condition.expression.clone();
    if source.len() > MAX_EXPRESSION {
        return Condition {
            name,
            program: Err("the expression is too long".to_owned()),
            needs: UsedVariables::default(),
        };
    }
    let read = std::panic::catch_unwind(|| ENVIRONMENT.compile(&source));
    let program = match read {
        Ok(read) => read.map_err(|error| format!("the expression cannot be read: {error}")),
        Err(_) => Err("the expression cannot be read".to_owned()),
    };
    let needs = program
        .as_ref()
        .map_or_else(|_| UsedVariables::default(), |program| UsedVariables::of(program.expression()));
    Condition { name, program, needs }
}

fn judge(conditions: &[Condition], variables: &Variables) -> Result<bool, String> {
    let mut failed = Vec::new();
    for condition in conditions {
        match evaluate(condition, variables) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => failed.push(format!("match condition {:?}: {why}", condition.name)),
        }
    }
    if failed.is_empty() { Ok(true) } else { Err(failed.join(", ")) }
}

fn evaluate(condition: &Condition, variables: &Variables) -> Result<bool, String> {
    let program = condition.program.as_ref().map_err(Clone::clone)?;
    let mut context = Context::with_env(ENVIRONMENT.clone());
    let (mut bytes, mut count) = (0_usize, 0_usize);
    let request = Json::whole(variables.request.clone());
    for (name, json) in [("object", &variables.object), ("oldObject", &variables.old), ("request", &request)]
    {
        if !condition.needs.names(name) {
            continue;
        }
        let length = json.len();
        if length > MAX_BYTES {
            return Err(format!("{name} has {length} bytes where {MAX_BYTES} are the limit"));
        }
        let (value, values) = json.to_value()?;
        bytes += length;
        count += values;
        context.add_variable_from_value(name, value);
    }
    let work = (count as u128).saturating_pow(condition.needs.loops).saturating_mul(bytes as u128);
    if condition.needs.loops > 0 && work > MAX_WORK {
        return Err("the evaluation would take too long for an object of this size".to_owned());
    }
    match program.execute(&context) {
        Ok(Value::Bool(holds)) => Ok(holds),
        Ok(_) => Err("the expression gives no boolean".to_owned()),
        Err(error) => Err(explain(&error)),
    }
}

/// Why an expression failed. Many errors show values of the object, and those are payload.
fn explain(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to {name}"),
        _ => "the evaluation failed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str =
        r#"{"metadata":{"name":"s","labels":{"app":"etcd"},"generation":2},"spec":{"list":[1,2,3]}}"#;
    const REQUEST: &str = r#"{"operation":"CREATE","name":"","userInfo":{"username":"system:node:a","groups":["g"]},"dryRun":false}"#;

    async fn hold(expressions: &[&str]) -> Result<bool, String> {
        let conditions: Vec<MatchCondition> = expressions
            .iter()
            .map(|e| MatchCondition { name: "c".into(), expression: (*e).into() })
            .collect();
        let variables = Variables {
            object: Json::whole(Bytes::from_static(OBJECT.as_bytes())),
            old: Json::default(),
            request: Bytes::from_static(REQUEST.as_bytes()),
        };
        Conditions::compile(&conditions).hold(variables).await
    }

    #[tokio::test]
    async fn expressions_of_the_kind_people_write_are_judged() {
        for (expression, holds) in [
            ("true", true),
            ("object.metadata.name == 's'", true),
            ("object.metadata.labels['app'] in ['etcd', 'x']", true),
            ("has(object.metadata.labels) && 'app' in object.metadata.labels", true),
            ("has(object.metadata.annotations)", false),
            ("object.metadata.?annotations['x'].orValue('') == ''", true),
            ("object.metadata.generation + 1 == 3", true),
            ("oldObject == null", true),
            ("!(request.userInfo.username.startsWith('system:node:'))", false),
            ("request.userInfo.groups.exists(g, g == 'g') && !request.dryRun", true),
            ("request.operation != 'DELETE'", true),
            ("object.spec.list.all(n, n > 0) && size(object.spec.list) == 3", true),
            ("object.metadata.name.matches('^[a-z]+$')", true),
            ("object.metadata.name.upperAscii() == 'S'", true),
        ] {
            assert_eq!(hold(&[expression]).await, Ok(holds), "{expression}");
        }
    }

    #[tokio::test]
    async fn one_that_does_not_hold_outweighs_one_that_fails() {
        assert_eq!(hold(&["object.metadata.none == 1", "false"]).await, Ok(false));
        assert_eq!(hold(&["true", "true"]).await, Ok(true));
        for expression in [
            "object.metadata.none == 1",
            "authorizer.group('').resource('pods').check('get').allowed()",
            "1",
            "object.",
            "url('https://x').getHost() == 'x'",
            "object.metadata.name > 1",
        ] {
            let failed = hold(&[expression]).await.expect_err(expression);
            assert!(failed.starts_with("match condition \"c\": "), "{failed}");
            assert!(!failed.contains("etcd"), "{failed}");
        }
    }

    #[tokio::test]
    async fn what_would_take_too_long_fails_before_it_runs() {
        let list: Vec<u32> = (0..20_000).collect();
        let object = serde_json::json!({"spec": {"list": list}}).to_string();
        let judge = async |expression: &str| {
            let condition = MatchCondition { name: "c".into(), expression: expression.into() };
            let object = Json::whole(object.clone().into());
            let variables = Variables { object, ..Variables::default() };
            Conditions::compile(&[condition]).hold(variables).await
        };
        let nested =
            "object.spec.list.all(a, object.spec.list.all(b, object.spec.list.all(c, a + b + c >= 0)))";
        let failed = judge(nested).await.expect_err("too much work");
        assert!(failed.contains("would take too long"), "{failed}");
        assert_eq!(judge("object.spec.list.size() == 20000").await, Ok(true));
        let large = Json::whole(format!("\"{}\"", "x".repeat(MAX_BYTES)).into());
        let condition = MatchCondition { name: "c".into(), expression: "object == 'x'".into() };
        let variables = Variables { object: large, ..Variables::default() };
        let failed = Conditions::compile(&[condition]).hold(variables).await.expect_err("too large");
        assert!(failed.contains("are the limit"), "{failed}");
    }
}
