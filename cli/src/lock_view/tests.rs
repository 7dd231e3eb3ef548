use super::*;

fn info(owner: &str, token: i64) -> Value {
    let text = |text: &str| Value::BulkString(text.into());
    Value::Map(vec![(text("owner"), text(owner)), (text("token"), Value::Int(token)), (text("note"), text("n"))])
}

#[test]
fn the_token_is_what_a_majority_has_at_least() {
    let view = |replies: Vec<Value>| LockView::of(b"k", replies, 2).unwrap();
    let all = view(vec![info("a", 7), info("a", 9), info("a", 8)]);
    assert_eq!((all.first.token, all.first.nodes, all.first.is_held), (8, 3, true));
    let split = view(vec![info("a", 7), info("b", 9), Value::Nil]);
    assert_eq!((split.first.nodes, split.first.is_held), (1, false));
    let partly = "held by nobody: the nodes hold 2 grants that no majority confirmed; the last of them ends in 0s";
    assert_eq!((split.state_line(3).as_str(), all.state_line(3).as_str()), (partly, "held by n for 0s"));
    let one = view(vec![info("a", 7), Value::Nil, Value::Nil]).state_line(3);
    assert_eq!(one, "held by nobody: 1 of 3 nodes holds a grant that no majority confirmed; it ends in 0s");
    let most = view(vec![info("a", 7), info("b", 9), info("a", 7)]);
    assert_eq!((most.first.owner.as_str(), most.first.token), ("61", 7));
    assert_eq!(LockView::of(b"k", vec![Value::Nil], 2), None);
    let (free, one) = (info("", 0), view(vec![info("", 0), info("a", 7), info("", 0)]));
    assert_eq!(
        (one.first.owner.as_str(), one.first.nodes, one.first.is_held),
        ("61", 1, false),
        "nodes where it is free do not count"
    );
    assert_eq!(LockView::of(b"k", vec![free.clone(), free], 2), None);
}

fn holder(owner: &str, mode: &str, permit: i64, token: i64) -> Value {
    let text = |text: &str| Value::BulkString(text.into());
    let fields = [
        ("owner", text(owner)),
        ("mode", text(mode)),
        ("permit", Value::Int(permit)),
        ("limit", Value::Int(8)),
        ("token", Value::Int(token)),
        ("note", text(owner)),
    ];
    Value::Map(fields.map(|(name, value)| (text(name), value)).to_vec())
}

fn joint(mode: &str, grants: &[(&str, i64, i64)]) -> Value {
    let text = |text: &str| Value::BulkString(text.into());
    let (owner, permit, token) = grants[0];
    let Value::Map(mut fields) = holder(owner, mode, permit, token) else { panic!() };
    let grants: Vec<_> = grants.iter().map(|(owner, permit, token)| holder(owner, mode, *permit, *token)).collect();
    fields.push((text("holders"), Value::Int(grants.len() as i64)));
    fields.push((text("grants"), Value::Array(grants)));
    Value::Map(fields)
}

#[test]
fn each_of_several_holders_is_seen_on_all_nodes_together() {
    let replies = vec![
        joint("permit", &[("web-1", 3, 7), ("web-2", 5, 9)]),
        joint("permit", &[("web-1", 3, 7)]),
        joint("permit", &[("web-2", 5, 8), ("web-1", 3, 7), ("late", 1, 9)]),
    ];
    assert!(replies.iter().all(is_joint));
    let view = LockView::of(b"k", replies, 2).unwrap();
    let seen: Vec<_> =
        view.grants.iter().map(|grant| (&*grant.holder, grant.permit, grant.nodes, grant.is_held)).collect();
    assert_eq!(seen, [("web-1", Some(3), 3, true), ("web-2", Some(5), 2, true), ("late", Some(1), 1, false)]);
    assert_eq!((view.grants[1].token, view.mode().as_str()), (8, "permits 3/8"));
    assert_eq!(view.holder_line(), "held by web-1 and 2 more (permits 3/8) for 0s");
    assert!(view.grants[1].line(3).starts_with("web-2, permit 5 of 8, token 8, for 0s, "));
    let one = LockView::of(b"k", vec![joint("shared", &[("web-1", 1, 7)])], 1).unwrap();
    assert_eq!(one.holder_line(), "held by web-1 (shared 1) for 0s");
    // A node that knows only exclusive locks reports no mode.
    assert!(!is_joint(&info("a", 7)) && !is_joint(&Value::Nil));
    assert_eq!(LockView::of(b"k", vec![info("a", 7)], 1).unwrap().holder_line(), "held by n for 0s");
}

/// Returns a node's answer about a lock of `owner`, with these waiters.
fn queue(owner: &str, waiters: &[&str]) -> Value {
    let text = |text: &str| Value::BulkString(text.into());
    let waiter = |owner: &&str| Value::Map(vec![(text("owner"), text(owner)), (text("behind"), Value::Int(1))]);
    let Value::Map(mut fields) = info(owner, 7) else { panic!() };
    fields.push((text("waiters"), Value::Int(waiters.len() as i64)));
    fields.push((text("waiters_behind"), Value::Int(waiters.len() as i64)));
    fields.push((text("queue"), Value::Array(waiters.iter().map(waiter).collect())));
    Value::Map(fields)
}

/// Node 3 was cut off when `x` released the lock: it still shows that `y`, which a majority serves since, waits, as
/// does `w`, which has given up. `z` came later.
#[test]
fn a_request_waits_if_a_majority_shows_it_and_it_was_not_served() {
    let replies = vec![queue("y", &["z"]), queue("y", &["z"]), queue("x", &["y", "w"])];
    let together = Together::of(replies, 2);
    let seen: Vec<_> = together.queue.iter().map(|waiter| (waiter.owner.as_str(), waiter.is_waiting)).collect();
    assert_eq!(seen, [("7a", true)]);
    assert_eq!((together.waiters, together.waiters_behind), (1, 1));
    let replies = vec![queue("x", &["a", "b"]), queue("x", &["b", "a"]), queue("x", &["w", "a", "b"])];
    let seen: Vec<_> = Together::of(replies, 2).queue.into_iter().map(|waiter| waiter.owner).collect();
    assert_eq!(seen, ["61", "62", "77"], "those of a majority come first");
    let twice = Together::of(vec![queue("x", &["w", "w"]), queue("x", &[]), queue("x", &[])], 2).queue;
    assert_eq!(twice.iter().map(|waiter| waiter.is_waiting).collect::<Vec<_>>(), [false, false], "on one node");
}
