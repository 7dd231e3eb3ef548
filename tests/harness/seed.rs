//! Where the randomness of a test comes from, and how to have the same again.

/// The seed of the test that runs: that of `PALISADE_SEED`, or a new one. The command that runs the test with it again is printed,
/// with whatever else of this crate's variables is set.
pub fn seed() -> u64 {
    let given = std::env::var("PALISADE_SEED").ok();
    let seed = given.map_or_else(rand::random, |seed| seed.parse().expect("PALISADE_SEED is a number"));
    let others: String = std::env::vars()
        .filter(|(name, _)| name.starts_with("PALISADE_") && name != "PALISADE_SEED")
        .map(|(name, value)| format!("{name}={value} "))
        .collect();
    let thread = std::thread::current();
    // The thread of a test has its name, but where tests run one after the other.
    let test = thread.name().filter(|name| name.contains("::")).map(|name| format!(" -- --exact {name}"));
    println!("again: PALISADE_SEED={seed} {others}cargo test --test server{}", test.unwrap_or_default());
    seed
}
