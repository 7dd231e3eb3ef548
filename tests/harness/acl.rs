//! The rules for users that docs/acl.md lists.

use std::path::Path;

/// Returns the rules of docs/acl.md for an application's user `app` that contain `part`.
pub fn acl_rules(part: &str) -> Vec<String> {
    // Crates of the workspace are in subfolders, so the page is searched in the folders above.
    let mut pages = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("docs/acl.md"));
    let page = pages.find(|page| page.exists()).expect("docs/acl.md");
    let rules: Vec<String> = std::fs::read_to_string(page)
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("ACL SETUSER app ") && line.contains(part))
        .map(str::to_owned)
        .collect();
    assert!(!rules.is_empty(), "no rule with {part} in docs/acl.md");
    rules
}
