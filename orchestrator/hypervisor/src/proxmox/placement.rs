//! Which node gets which worker.

use super::Nodes;

/// The node of each worker, in order: in turn over the nodes, so that any first part of the workers is spread as well.
///
/// # Errors
/// Counts that do not add up to the workers, or no node at all.
pub(super) fn spread(workers: u32, wanted: Option<&Nodes>, online: &[String]) -> Result<Vec<String>, String> {
    match wanted {
        None => in_turn(workers, online),
        Some(Nodes::Evenly(nodes)) => in_turn(workers, nodes),
        Some(Nodes::Counts(counts)) => {
            let sum: u64 = counts.values().map(|count| u64::from(*count)).sum();
            if sum != u64::from(workers) {
                return Err(format!("target.nodes: the counts add up to {sum}, but there are {workers} workers"));
            }
            let mut left: Vec<(&String, u32)> = counts.iter().map(|(node, count)| (node, *count)).collect();
            let mut placed = Vec::new();
            while left.iter().any(|(_, count)| *count > 0) {
                for (node, count) in left.iter_mut().filter(|(_, count)| *count > 0) {
                    placed.push((*node).clone());
                    *count -= 1;
                }
            }
            Ok(placed)
        }
    }
}

fn in_turn(workers: u32, nodes: &[String]) -> Result<Vec<String>, String> {
    if nodes.is_empty() {
        return Err("no node is online to put workers on".into());
    }
    Ok(nodes.iter().cycle().take(usize::try_from(workers).unwrap_or(usize::MAX)).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn workers_are_spread_evenly_over_the_nodes() {
        assert_eq!(spread(5, None, &names(&["a", "b"])).unwrap(), names(&["a", "b", "a", "b", "a"]));
        let wanted = Nodes::Evenly(names(&["c"]));
        assert_eq!(spread(2, Some(&wanted), &names(&["a", "b"])).unwrap(), names(&["c", "c"]));
        assert!(spread(1, None, &[]).is_err());
    }

    #[test]
    fn counts_are_kept_and_must_add_up() {
        let wanted = Nodes::Counts([("a".into(), 3), ("b".into(), 1), ("c".into(), 0)].into());
        assert_eq!(spread(4, Some(&wanted), &[]).unwrap(), names(&["a", "b", "a", "a"]));
        let error = spread(5, Some(&wanted), &[]).unwrap_err();
        assert!(error.contains("add up to 4") && error.contains("5 workers"), "{error}");
    }
}
