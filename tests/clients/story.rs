//! The steps that every recipe performs, one per line of output.

/// The steps, and the form of each line. `T1` to `T6` stand for tokens, each larger than the one before.
const STORY: [(&str, &str); 17] = [
    ("acquire", "T1"),
    ("another owner", ""),
    ("again", "OWNED"),
    ("again with RETRY", "T1"),
    ("reenter", "2"),
    ("extend", "T1"),
    ("release", "0"),
    ("wait", "T2"),
    ("write with the current token", ""),
    ("write with the old token", "FENCED"),
    ("read", "T3"),
    ("read as well", "T4"),
    ("write meanwhile", ""),
    ("permit", "T5 0 1"),
    ("guarded", "GUARDED, try again in N ms"),
    ("lock", "T6"),
    ("after it", ""),
];

/// The steps with the answer Null.
const REFUSED: [&str; 3] = ["another owner", "write meanwhile", "after it"];

/// The steps whose line contains a time.
const TIMED: [&str; 2] = ["wait", "guarded"];

/// The steps that need data or a guard on the node: an agent has neither.
pub const OF_A_NODE: [&str; 3] = ["write with the current token", "write with the old token", "guarded"];

/// The number of digits of a token, from the year 2001 to 2286.
const TOKEN_DIGITS: usize = 16;

/// Returns a recipe's output, with names in place of tokens and N in place of times. The error says where it differs
/// from the story.
pub fn told(printed: &str) -> Result<Vec<String>, String> {
    told_without(&[], printed)
}

/// As [`told`], for a recipe that leaves out these steps. With a quorum the first permit can have any number.
pub fn told_without(left_out: &[&str], printed: &str) -> Result<Vec<String>, String> {
    let is_quorum = !left_out.is_empty();
    let any_permit = |(step, part)| if is_quorum && step == "permit" { (step, "T5 0") } else { (step, part) };
    let story: Vec<_> = STORY.into_iter().filter(|(step, _)| !left_out.contains(step)).map(any_permit).collect();
    let mut tokens = Vec::new();
    let mut lines = Vec::new();
    for line in printed.lines() {
        let (step, answer) = line.split_once(':').ok_or_else(|| format!("no step: {line}"))?;
        lines.push((step, without_numbers(answer.trim(), TIMED.contains(&step), &mut tokens)));
    }
    let steps: Vec<_> = lines.iter().map(|(step, _)| *step).collect();
    if !steps.iter().eq(story.iter().map(|(step, _)| step)) {
        return Err(format!("not the steps of the story: {steps:?}"));
    }
    if let Some(((step, answer), (_, part))) =
        lines.iter().zip(&story).find(|((_, answer), (_, part))| !words(answer).contains(&words(part)))
    {
        return Err(format!("{step}: no {part} in {answer}"));
    }
    // All answers that are Null have to look alike.
    let nulls: Vec<_> = lines.iter().filter(|(step, _)| REFUSED.contains(step)).map(|(_, answer)| answer).collect();
    if nulls.iter().any(|null| *null != nulls[0]) {
        return Err(format!("more than one kind of Null: {nulls:?}"));
    }
    if !tokens.is_sorted() {
        return Err(format!("tokens that do not grow: {tokens:?}"));
    }
    Ok(lines.into_iter().map(|(step, answer)| format!("{step}: {answer}")).collect())
}

/// Returns the words of an answer, without the punctuation that a language puts around and between those of a list.
fn words(answer: &str) -> String {
    let words = answer.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| format!("{word} ")).collect()
}

/// Returns `answer` with `T<n>` in place of the nth token so far and, if it contains times, `N` in place of other
/// numbers.
fn without_numbers(answer: &str, timed: bool, tokens: &mut Vec<u64>) -> String {
    let mut without = String::new();
    let mut rest = answer;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        without.push_str(before);
        if number.len() == TOKEN_DIGITS {
            let token = number.parse().expect("digits");
            let known = tokens.iter().position(|known| *known == token);
            let index = known.unwrap_or_else(|| {
                tokens.push(token);
                tokens.len() - 1
            });
            without.push_str(&format!("T{}", index + 1));
        } else {
            without.push_str(if timed { "N" } else { number });
        }
        rest = after;
    }
    without + rest
}
