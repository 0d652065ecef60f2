//! How many pages have to be brought back under the policy, in simulations of access patterns and
//! of recorded programs, beside rules that remember nothing, rules that see all touches, and the
//! optimum, which knows the future.

mod patterns;
mod programs;
mod rules;
