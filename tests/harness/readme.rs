//! What the README tells people to type.

/// Its rules for the user `app` of an application: those with this in them.
pub fn readme_rules(part: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"));
    // Crates of the workspace have folders of their own.
    let readme = readme.ok().filter(|text| text.contains("ACL SETUSER app "));
    let readme = readme
        .unwrap_or_else(|| std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap());
    let rules: Vec<String> = readme
        .lines()
        .filter(|line| line.starts_with("ACL SETUSER app ") && line.contains(part))
        .map(str::to_owned)
        .collect();
    assert!(!rules.is_empty(), "no rule with {part} in the README");
    rules
}
