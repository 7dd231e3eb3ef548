//! Runs every target on its seeds and on random inputs: the part of the fuzzing that belongs to every test run.
//!
//! `PALISADE_INPUTS` sets the number of random inputs for each target (default 3000), `PALISADE_SEED` the seed from
//! which they are drawn, and `PALISADE_TARGET` the only target to run.

use std::fs;
use std::path::{Path, PathBuf};

use palisade_fuzz::{TARGETS, Target};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

/// The longest random input, in bytes: some hundred requests.
const LONGEST: usize = 4_096;

fn seeds(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target.name);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), fs::read(file).unwrap())).collect()
}

/// Runs the target on `input`. If it panics, says which input that was.
fn run(target: &Target, input: &[u8], what: &str) {
    let result = std::panic::catch_unwind(|| (target.run)(input));
    if result.is_err() {
        let file = std::env::temp_dir().join(format!("palisade-{}-input", target.name));
        fs::write(&file, input).unwrap();
        let file = file.display();
        panic!("{what}; again: cargo run --package palisade-fuzz -- {} {file}", target.name);
    }
}

#[test]
fn every_seed_keeps_every_promise() {
    for target in &TARGETS {
        let seeds = seeds(target);
        assert!(!seeds.is_empty(), "{} has seeds", target.name);
        for (file, bytes) in seeds {
            run(target, &bytes, &format!("seed {}", file.display()));
        }
    }
}

/// Returns `PALISADE_SEED`, or a new seed. Prints the command that draws the same inputs again.
fn seed(inputs: usize) -> u64 {
    let given = std::env::var("PALISADE_SEED").ok();
    let seed = given.map_or_else(rand::random, |seed| seed.parse().expect("PALISADE_SEED is a number"));
    println!(
        "again: PALISADE_SEED={seed} PALISADE_INPUTS={inputs} cargo test --package palisade-fuzz --test inputs -- --exact \
         random_inputs_keep_every_promise"
    );
    seed
}

/// Draws inputs and runs every target on them. Half are random bytes. Each of the others is a seed that follows the
/// beginning of another seed, with some bytes changed, cut or repeated.
#[test]
fn random_inputs_keep_every_promise() {
    let inputs = std::env::var("PALISADE_INPUTS").ok().and_then(|inputs| inputs.parse().ok()).unwrap_or(3_000);
    let seed = seed(inputs);
    let only = std::env::var("PALISADE_TARGET").ok();
    for target in TARGETS.iter().filter(|target| only.as_ref().is_none_or(|only| only == target.name)) {
        let mut random = StdRng::seed_from_u64(seed);
        let seeds = seeds(target);
        for n in 0..inputs {
            let mut input = if n % 2 == 0 {
                let mut bytes = vec![0; random.random_range(0..LONGEST)];
                random.fill_bytes(&mut bytes);
                bytes
            } else {
                let any = |random: &mut StdRng| &seeds[random.random_range(0..seeds.len())].1;
                let (head, tail) = (any(&mut random), any(&mut random));
                let cut = random.random_range(0..=head.len());
                [&head[..cut], tail].concat()
            };
            for _ in 0..random.random_range(0..8) {
                change(&mut input, &mut random);
            }
            run(target, &input, &format!("random input {n} of seed {seed}"));
        }
    }
}

fn change(input: &mut Vec<u8>, random: &mut StdRng) {
    if input.is_empty() {
        return;
    }
    let at = random.random_range(0..input.len());
    match random.random_range(0..4) {
        0 => input[at] = random.random(),
        1 => input[at] ^= 1 << random.random_range(0..8),
        2 => input.truncate(at),
        _ => input.extend_from_within(at..),
    }
    input.truncate(LONGEST);
}
