//! What is left out of what is handed on: a report goes to whoever the storage belongs to, and how a cluster was asked (whose token it
//! was, where this machine keeps its secret, how the certificate was judged) says nothing of the figures.

use analysis::export::Run;
use plan::edit;
use serde_json::Value;

/// Of a place and of a plan's target, at any depth.
const ACCESS: [&str; 5] = ["token", "tls", "secret_env", "secret_file", "ca_file"];

/// Stands for a plan's text that cannot be freed of it.
const NOT_SHOWN: &str = "# The text says how the cluster is reached and is not shown; the JSON export has it.\n";

/// An environment or a plan without what is in its `part` of [`ACCESS`].
fn without_access(value: &Value, part: &str) -> Value {
    let mut value = value.clone();
    if let Some(part) = value.get_mut(part) {
        strip(part);
    }
    value
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !ACCESS.contains(&name.as_str()));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// What was recorded of where a run ran.
pub(crate) fn environment(environment: &Value) -> Value {
    without_access(environment, "place")
}

/// A plan as validated.
pub(crate) fn plan(plan: &Value) -> Value {
    without_access(plan, "target")
}

/// A plan as written. What is no plan has nothing to leave out.
pub(crate) fn plan_yaml(yaml: &str) -> String {
    let mut text = yaml.to_owned();
    for name in ACCESS {
        let field = format!("target.{name}");
        if !edit::has(&text, &field) {
            continue;
        }
        text = match edit::remove(&text, &field) {
            Ok(freed) if !edit::has(&freed, &field) => freed,
            _ => return NOT_SHOWN.to_owned(),
        };
    }
    text
}

/// What a run was warned of.
pub(crate) fn warnings(run: &Run) -> Vec<String> {
    run.warnings.iter().map(|warning| words(run, warning)).collect()
}

/// A sentence that was recorded with a run, without the id of the token that its cluster was asked with: what the check of a cluster found
/// names it, and its user in the commands that would mend it.
pub(crate) fn words(run: &Run, text: &str) -> String {
    let Some(token) = run.environment.pointer("/place/settings/token/id").and_then(Value::as_str) else {
        return text.to_owned();
    };
    let user = token.split('!').next().unwrap_or_default();
    let text = text.replace(&format!("token {token}"), "the API token").replace(token, "TOKEN");
    if user.is_empty() { text } else { text.replace(user, "USER") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whose_token_it_was_and_where_its_secret_is_are_left_out_wherever_they_are() {
        let settings = json!({"endpoint": "https://pve1:8006", "storage": "ceph",
            "token": {"id": "fc@pve!poc", "secret_file": "/root/secret"}, "tls": {"ca_file": "/root/ca.pem"}});
        let recorded = json!({"place": {"provider": "proxmox", "settings": settings}, "workers": [{"token": "kept"}]});
        let shown = environment(&recorded);
        let expected = json!({"place": {"provider": "proxmox", "settings": {"endpoint": "https://pve1:8006", "storage": "ceph"}},
            "workers": [{"token": "kept"}]});
        assert_eq!(shown, expected);
        let validated = json!({"name": "token", "target": {"cluster": {"Given": settings}}});
        assert_eq!(
            plan(&validated),
            json!({"name": "token", "target": {"cluster": {"Given": {"endpoint": "https://pve1:8006", "storage": "ceph"}}}})
        );
        assert_eq!(environment(&Value::Null), Value::Null);
    }

    #[test]
    fn a_plan_as_written_loses_nothing_else() {
        let plain = ::plan::example("proxmox").unwrap();
        assert_eq!(plan_yaml(plain), plain);
        assert_eq!(plan_yaml("a: ["), "a: [");
        for (target, left) in [
            (
                "target:\n  provider: proxmox\n  token: # ours\n    id: fc@pve!poc\n    secret_file: /root/secret\n  tls: {ca_file: /root/ca.pem}\n  storage: ceph # fast\nname: x\n",
                "target:\n  provider: proxmox\n  storage: ceph # fast\nname: x\n",
            ),
            ("target: {provider: proxmox, token: {id: fc@pve!poc, secret_file: /root/secret}, storage: ceph}\n", ""),
        ] {
            let shown = plan_yaml(target);
            assert!(!shown.contains("fc@pve") && !shown.contains("/root"), "{shown}");
            assert!(left.is_empty() || shown == left, "{shown}");
        }
    }
}
