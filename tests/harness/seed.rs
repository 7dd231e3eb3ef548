//! The source of a test's randomness, and the command that repeats it.

/// Returns the seed of the running test: the one in `PALISADE_SEED`, or a new one. Prints the command that repeats the
/// test with this seed, and with the other variables of this crate that are set.
pub fn seed() -> u64 {
    let given = std::env::var("PALISADE_SEED").ok();
    let seed = given.map_or_else(rand::random, |seed| seed.parse().expect("PALISADE_SEED is a number"));
    let others: String = std::env::vars()
        .filter(|(name, _)| name.starts_with("PALISADE_") && name != "PALISADE_SEED")
        .map(|(name, value)| format!("{name}={value} "))
        .collect();
    let thread = std::thread::current();
    // A test's thread has the test's name, unless tests run one after the other.
    let test = thread.name().filter(|name| name.contains("::")).map(|name| format!(" -- --exact {name}"));
    let (package, tests) = (env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
    println!("again: PALISADE_SEED={seed} {others}cargo test -p {package} --test {tests}{}", test.unwrap_or_default());
    seed
}
