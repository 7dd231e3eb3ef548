// Package without makes a copy of Palisade in which one rule does not hold, to show that the judge notices.
package without

// Rule is a rule that is switched off by changes of the sources.
type Rule struct {
	// Name is the name of the rule in `make rules`, which also describes the rule in a sentence.
	Name string
	// Plan is the plan whose histories show that the rule is missing.
	Plan string
	// Builds are the arguments of cargo that select what has to be compiled.
	Builds  []string
	Changes []Change
}

// Change replaces a text that occurs once in the file.
type Change struct {
	File, From, To string
}

var (
	module = []string{"--package", "palisade"}
	crate  = []string{"--package", "palisade", "--package", "palisade-client", "--lib", "--example", "conformance"}
	all    = append([]string{"--package", "palisade-cli", "--bins"}, crate...)
)

// Rules are the rules without which the servers of judge-record can break a law. docs/judge.md says why other rules
// cannot be tested like this.
var Rules = []Rule{
	{"guard", "forgets", module, []Change{{"core/src/guard/mod.rs",
		"self.0 = Some(Armed { until, since, cause: later });", "_ = (until, since, later);"}}},
	{"guard-length", "forgets", module, []Change{{"core/src/guard/mod.rs",
		"u32::try_from(ms).unwrap_or(u32::MAX)", "u32::try_from(ms / 4).unwrap_or(u32::MAX)"}}},
	{"ceiling", "forgets", module, []Change{{"core/src/durability/start.rs",
		"Some(last) if last.is_tied_to(found) => last.ceiling.max(wall_us),", "Some(last) if last.is_tied_to(found) => wall_us,"}}},
	{"tied-data", "restored", module, []Change{{"core/src/durability/start.rs",
		"last.is_tied_to(self.found) && (ended_clean", "(ended_clean"}}},
	{"grants-are-told", "durable", module, []Change{{"core/src/engine/decide.rs",
		"self.changed(id, Some(Event::Acquired), granted(at.held.as_deref(), id), at)",
		"self.answer(Ok(granted(at.held.as_deref(), id)))"}}},
	{"evicted-bars", "evicts", module, []Change{{"core/src/guard/evicted.rs",
		"if self.locks.is_empty() { Ok(()) }", "if self.locks.len() < usize::MAX { Ok(()) }"}}},
	{"evicted-unproved", "evicts", module, []Change{
		{"src/durability/dropped_locks.rs", "if state::with(|node| node.evict(key, lock, now)) {", "if state::with(|node| node.evict(key, lock, now)) && false {"},
		{"src/durability/start.rs", "state::with(|node| node.evicted().is_empty())", "true"}}},
	{"holder-reenters", "calm", module, []Change{{"core/src/rules/reenter.rs",
		"live_of(held, ask.owner, None, now.boot) else",
		"held.map(|lock| (lock.find(ask.owner).unwrap_or(lock.first_id()), lock)).map(|(own, lock)| (lock, own)) else"}}},
	{"readers-keep-writers-out", "calm", module, []Change{{"core/src/lock/modes.rs",
		"            Mode::Exclusive => false,\n            Mode::Shared => self.shared > 0,",
		"            Mode::Exclusive => self.shared > 0,\n            Mode::Shared => self.shared > 0,"}}},
	{"numbers-not-counts", "calm", module, []Change{{"core/src/lock/modes.rs",
		"                    && !self.numbers.has(permit.number())\n", ""}}},
	{"both-limits", "calm", module, []Change{{"core/src/lock/modes.rs",
		"                    && permit.number() <= self.least_limit()\n", ""}}},
	{"converts-alone", "calm", module, []Change{{"core/src/rules/convert.rs",
		"if is_alone && !node", "if (is_alone || lock.len() > 1) && !node"}}},
	{"proposal-above-last", "five", module, []Change{{"core/src/tokens/mod.rs",
		"Some(proposal) if floor < proposal.get() && proposal.get() <= bound", "Some(proposal) if proposal.get() <= bound"}}},
	{"readers-above-writers", "five", module, []Change{{"core/src/rules/grant.rs",
		"last: node.tokens.last_ordered(key.name),", "last: 0,"}}},
	{"permits-above-their-number", "five", module, []Change{{"core/src/rules/grant.rs",
		"holders.phase(past).floor_of(mode, past.last).max(",
		"(holders.phase(past).floor_of(mode, past.last) * u64::from(!matches!(mode, Mode::Permit(_)))).max("}}},
	{"readers-above-converted", "five", module, []Change{{"core/src/rules/convert.rs",
		"lock.convert(own, Mode::Shared, node.past(key));", "lock.convert(own, Mode::Shared, Past::default());"}}},
	{"slots-floor", "cluster", module, []Change{{"core/src/node/cluster.rs",
		"self.tokens.raise_floor(token_floor(None, &Found::default(), now.wall_us, self.skew_ms));", "_ = token_floor(None, &Found::default(), now.wall_us, self.skew_ms);"}}},
	{"gate-compares", "durable", module, []Change{{"quorum/src/floors.rs",
		"floor if token < floor => Err(floor),", "floor if token < floor.min(1) => Err(floor),"}}},
	{"second-round", "crate", crate, []Change{{"quorum/src/acquire.rs",
		"self.target = tokens().max();", "return self.done(tokens().max().unwrap_or(self.proposal));"}}},
	{"majorities-meet", "crate", crate, []Change{{"quorum/src/ask.rs", "    nodes / 2 + 1\n", "    nodes / 2\n"}}},
	{"from-the-send", "crate", crate, []Change{{"quorum/src/acquire.rs",
		"let needed = majority(self.seats.len());", "self.start = now;\n        let needed = majority(self.seats.len());"}}},
	{"one-node-at-a-time", "members", all, []Change{
		{"quorum/src/change.rs", "    if let Some(missing) = wanted", "    if present != wanted {\n        return Some(wanted.to_vec());\n    }\n    if let Some(missing) = wanted"},
		{"core/src/members.rs", "if version > 1 && !self", "if version > u64::MAX - 1 && !self"}}},
	{"leases-end-first", "members", all, []Change{{"core/src/members.rs",
		"|| now > self.unsettled_until {", "|| now > self.unsettled_until || now <= self.unsettled_until {"}}},
	{"older-clients-are-refused", "members", all, []Change{{"core/src/members.rs",
		"version >= self.saved.decided.version", "version < u64::MAX || version >= self.saved.decided.version"}}},
	{"tokens-go-on", "members", all, []Change{{"core/src/node/members.rs",
		"self.raise_floor(floor);", "_ = floor;"}}},
	{"version-is-kept", "members", all, []Change{{"core/src/members.rs",
		"Self { saved, unsettled_until: now.plus_ms(longest_ms) }", "_ = (saved, longest_ms, now);\n        Self::default()"}}},
	{"owner-of-its-own", "crate", crate, []Change{{"client/src/values/attempt_name.rs",
		"Arc::from(rand::random::<[u8; 20]>())", "Arc::from(std::process::id().to_le_bytes())"}}},
}

// IsDense returns whether the histories have short faults and short leases. Two rules concern what happens within one
// lease: that lease must last longer than the start of a server, or than two changes of the set.
func (rule Rule) IsDense() bool {
	return rule.Name != "evicted-unproved" && rule.Name != "leases-end-first"
}

// Named returns the rule with this name.
func Named(name string) (Rule, bool) {
	for _, rule := range Rules {
		if rule.Name == name {
			return rule, true
		}
	}
	return Rule{}, false
}
